import urllib.request
urllib.request.urlopen("http://example.org/")

# Only: wasm
# Error: the sandbox has no network
# Output:
