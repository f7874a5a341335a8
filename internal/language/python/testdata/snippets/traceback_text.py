import traceback
def inner():
    return {}["missing"]
try:
    inner()
except KeyError:
    print(traceback.format_exc().splitlines()[-1])

# Output:
# KeyError: 'missing'
