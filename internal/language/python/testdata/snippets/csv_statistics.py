import csv, io, statistics
text = "name,score\nann,3\nbob,5\ncid,10\n"
scores = [int(r["score"]) for r in csv.DictReader(io.StringIO(text))]
print(statistics.mean(scores), statistics.median(scores), round(statistics.stdev(scores), 3))

# Output:
# 6 5 3.606
