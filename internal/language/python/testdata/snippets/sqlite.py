import sqlite3
db = sqlite3.connect("t.db")
db.execute("create table if not exists t(a int, b text)")
db.executemany("insert into t values(?, ?)", [(i, chr(97 + i)) for i in range(5)])
db.commit()
print(db.execute("select sum(a), group_concat(b, '') from t where a > 1").fetchone())
try:
    with db:
        db.execute("insert into t values(9, 'z')")
        raise ValueError
except ValueError:
    print(db.execute("select count(*) from t").fetchone())
print(db.execute("select json_extract('{\"x\":[1,2]}', '$.x[1]')").fetchone())

# Output:
# (9, 'cde')
# (5,)
# (2,)
