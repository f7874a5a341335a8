;; A module with the exports of the interpreter, whose "program" obeys letters on its
;; standard input: one for each call of run. Made into session.wasm by wat2wasm.
(module
  (import "sallyport" "fuel" (func $fuel))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sched_yield" (func $sched_yield (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 2 65536)
  (global $turns (export "g0") (mut i32) (i32.const 1000))
  (global $counter (export "g1") (mut i64) (i64.const 0))

  ;; Addresses: 0 vector, 8 count, 16 byte, 100 interrupted, 104 started, 108 timer,
  ;; 112 what g0 was when there was an interrupt,
  ;; 4096 what load_data writes, 12288 what w writes.
  (func (export "load_data") (i32.store (i32.const 4096) (i32.const 0x11223344)))
  (func (export "_initialize"))
  (func (export "boot") (result i32)
    (i32.ne (i32.load (i32.const 4096)) (i32.const 0x11223344)))
  (func (export "interrupt")
    (i32.store (i32.const 100) (i32.const 1))
    (i32.store (i32.const 112) (global.get $turns)))

  (func $tick
    (global.set $turns (i32.sub (global.get $turns) (i32.const 1)))
    (if (i32.eqz (global.get $turns))
      (then (global.set $turns (i32.const 1000)) (call $fuel))))

  ;; read returns a byte, -1 at the end of the input, or -2 for an error.
  (func $read (result i32)
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 1))
    (if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8))
      (then (return (i32.const -2))))
    (if (i32.eqz (i32.load (i32.const 8))) (then (return (i32.const -1))))
    (i32.load8_u (i32.const 16)))

  (func $say (param $byte i32)
    (i32.store8 (i32.const 16) (local.get $byte))
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 1))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))

  (func $recurse (param i32) (result i32)
    (i32.add (call $recurse (i32.add (local.get 0) (i32.const 1))) (local.get 0)))

  ;; spin ends when there was an interrupt.
  (func $spin
    (loop $again
      (call $tick)
      (br_if $again (i32.eqz (i32.load (i32.const 100)))))
    (i32.store (i32.const 100) (i32.const 0))
    (call $say (i32.const 105))) ;; i

  (func (export "run") (result i64)
    (local $c i32)
    (if (i32.eqz (i32.load (i32.const 104)))
      (then
        (i32.store (i32.const 104) (i32.const 1))
        (return (i64.const 0x4000000000000000))))
    (if (i32.load (i32.const 108))
      (then
        (i32.store (i32.const 108) (i32.const 0))
        (call $say (i32.const 84)) ;; T
        (return (i64.const 0x4000000000000000))))
    (local.set $c (call $read))
    (if (i32.eq (local.get $c) (i32.const -1)) (then (call $proc_exit (i32.const 0))))
    ;; b: wait for another byte and say it; e if that fails
    (if (i32.eq (local.get $c) (i32.const 98))
      (then
        (local.set $c (call $read))
        (if (i32.lt_s (local.get $c) (i32.const 0)) (then (local.set $c (i32.const 101))))
        (call $say (local.get $c))))
    ;; c: count
    (if (i32.eq (local.get $c) (i32.const 99))
      (then
        (global.set $counter (i64.add (global.get $counter) (i64.const 1)))
        (call $say (i32.add (i32.const 48) (i32.wrap_i64 (global.get $counter))))))
    ;; f: fail
    (if (i32.eq (local.get $c) (i32.const 102)) (then (return (i64.const -1))))
    ;; g: grow by a megabyte
    (if (i32.eq (local.get $c) (i32.const 103))
      (then
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1))
          (then (call $say (i32.const 110)))
          (else (call $say (i32.const 121))))))
    ;; h: be called again in an hour
    (if (i32.eq (local.get $c) (i32.const 104))
      (then (i32.store (i32.const 108) (i32.const 1)) (return (i64.const 3600000))))
    ;; l: loop until there is an interrupt
    (if (i32.eq (local.get $c) (i32.const 108)) (then (call $spin)))
    ;; m: say the highest byte of memory, and set it
    (if (i32.eq (local.get $c) (i32.const 109))
      (then
        (call $say (i32.add (i32.const 48)
          (i32.load8_u (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 1)))))
        (i32.store8 (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 1)) (i32.const 7))))
    ;; o: read out of bounds
    (if (i32.eq (local.get $c) (i32.const 111)) (then (drop (i32.load (i32.const -8)))))
    ;; p: say how much less g0 was at the last interrupt
    (if (i32.eq (local.get $c) (i32.const 112))
      (then (call $say (i32.sub (global.get $turns) (i32.load (i32.const 112))))))
    ;; r: recurse without end
    (if (i32.eq (local.get $c) (i32.const 114)) (then (drop (call $recurse (i32.const 0)))))
    ;; t: be called again in 20 ms
    (if (i32.eq (local.get $c) (i32.const 116))
      (then (i32.store (i32.const 108) (i32.const 1)) (return (i64.const 20))))
    ;; u: trap
    (if (i32.eq (local.get $c) (i32.const 117)) (then unreachable))
    ;; v: say what w writes
    (if (i32.eq (local.get $c) (i32.const 118))
      (then (call $say (i32.load8_u (i32.const 16384)))))
    ;; w: write 5 pages
    (if (i32.eq (local.get $c) (i32.const 119))
      (then
        (memory.fill (i32.const 12288) (i32.const 65) (i32.const 20480))
        (call $say (i32.const 119))))
    ;; y: call a host function until there is an interrupt, and no other
    (if (i32.eq (local.get $c) (i32.const 121))
      (then
        (loop $again
          (drop (call $sched_yield))
          (br_if $again (i32.eqz (i32.load (i32.const 100)))))
        (i32.store (i32.const 100) (i32.const 0))
        (call $say (i32.const 105)))) ;; i
    ;; x: exit
    (if (i32.eq (local.get $c) (i32.const 120)) (then (call $proc_exit (i32.const 7))))
    (i64.const 0x4000000000000000)))
