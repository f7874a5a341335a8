from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo
t = datetime(2024, 3, 31, 0, 30, tzinfo=timezone.utc)
b = t.astimezone(ZoneInfo("Europe/Berlin"))
print(b.isoformat(), (t + timedelta(hours=1)).astimezone(ZoneInfo("Europe/Berlin")).isoformat())
print(datetime.strptime("2024-02-29", "%Y-%m-%d").strftime("%a %d %b %Y"))

# Output:
# 2024-03-31T01:30:00+01:00 2024-03-31T03:30:00+02:00
# Thu 29 Feb 2024
