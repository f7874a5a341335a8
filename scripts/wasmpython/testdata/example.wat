;; What the pass has to look at, in one module.
;;   wat2wasm example.wat
(module
  (import "host" "double" (func $double (param i32) (result i32)))
  (import "host" "base" (global $base i32))
  (type $binary (func (param i32 i32) (result i32)))
  (func $add (type $binary) (i32.add (local.get 0) (local.get 1)))
  (func $sub (type $binary) (i32.sub (local.get 0) (local.get 1)))
  (table $functions 4 funcref)
  (memory (export "memory") 1 1000)
  (global $count (mut i32) (i32.const 7))
  (global $float (mut f64) (f64.const 2.5))
  (global $same i32 (global.get $base))
  (global $reference funcref (ref.func $sub))
  (elem (table $functions) (i32.const 0) func $add $sub)
  (elem (table $functions) (i32.const 2) funcref (ref.func $double) (ref.null func))
  (elem $later func $add)
  (elem declare func $sub)
  (data (i32.const 8) "first")
  (data $passive "later")
  (data (i32.const 70) "second")
  (func $begin (global.set $count (i32.const 11)))
  (start $begin)

  ;; sum adds the numbers below n; its loop has a parameter on the stack.
  (func (export "sum") (param $n i32) (result i32) (local $i i32)
    (i32.const 0)
    (loop $next (param i32) (result i32)
      (i32.add (local.get $i))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $i) (local.get $n)))))

  ;; apply calls a function of the table.
  (func (export "apply") (param $f i32) (param i32 i32) (result i32)
    (call_indirect (type $binary) (local.get 1) (local.get 2) (local.get $f)))

  ;; pick jumps by a table.
  (func (export "pick") (param i32) (result i32)
    (block $c (block $b (block $a (br_table $a $b $c (local.get 0)))
      (return (i32.const 10)))
      (return (call $double (i32.const 10))))
    (i32.const 30))

  ;; rest uses what else is in such modules.
  (func (export "rest") (result i32)
    (memory.init $passive (i32.const 100) (i32.const 0) (i32.const 5))
    (memory.copy (i32.const 200) (i32.const 100) (i32.const 5))
    (memory.fill (i32.const 300) (i32.const 1) (i32.const 4))
    (data.drop $passive)
    (table.init $functions $later (i32.const 3) (i32.const 0) (i32.const 1))
    (elem.drop $later)
    (table.set $functions (i32.const 2) (global.get $reference))
    (drop (ref.is_null (table.get $functions (i32.const 0))))
    (drop (select (result funcref) (ref.null func) (ref.func $sub) (i32.const 1)))
    (drop (select (i64.const -5) (i64.const 5) (memory.size)))
    (drop (i32.trunc_sat_f64_s (f64.const 1e300)))
    (drop (f32.const 1.5))
    (drop (i64.extend32_s (i64.const 0x80000000)))
    (nop)
    (if (result i32) (i32.load8_u offset=200 (i32.const 0))
      (then (i32.load offset=300 (i32.const 0)))
      (else (i32.const 0))))

  ;; tree calls itself 2^(n+1)-2 times, without a loop.
  (func $tree (export "tree") (param $n i32)
    (if (local.get $n) (then
      (call $tree (i32.sub (local.get $n) (i32.const 1)))
      (call $tree (i32.sub (local.get $n) (i32.const 1))))))

  ;; ring does so through a table.
  (table $rings 1 funcref)
  (elem (table $rings) (i32.const 0) func $ring)
  (func $ring (export "ring") (param $n i32)
    (if (local.get $n) (then
      (call_indirect $rings (param i32) (i32.sub (local.get $n) (i32.const 1)) (i32.const 0))
      (call_indirect $rings (param i32) (i32.sub (local.get $n) (i32.const 1)) (i32.const 0)))))

  ;; grow makes room, copy and fill change it.
  (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
  (func (export "copy") (param i32 i32 i32) (memory.copy (local.get 0) (local.get 1) (local.get 2)))
  (func (export "fill") (param i32 i32 i32) (memory.fill (local.get 0) (local.get 1) (local.get 2))))
