import xml.etree.ElementTree as ET
from html.parser import HTMLParser
root = ET.fromstring("<a><b id='1'>x</b><b id='2'>y</b></a>")
print([(b.get("id"), b.text) for b in root.iter("b")])
class Links(HTMLParser):
    def handle_starttag(self, tag, attrs):
        if tag == "a":
            print(dict(attrs)["href"])
Links().feed('<p><a href="/x">x</a><a href="/y">y</a>')

# Output:
# [('1', 'x'), ('2', 'y')]
# /x
# /y
