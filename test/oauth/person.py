"""Plays the user without a browser: signs in at an address of server.mjs, consents
and goes where that leads. As a program it is a browser for `sallyport servers login`.

    python person.py USER|- ADDRESS     "-" refuses
"""

import re
import sys
import urllib.parse

import httpx2


def walk(address, user="alice", deny=False):
    """The address to which the user is sent back."""
    back = urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)["redirect_uri"][0]
    with httpx2.Client(trust_env=False, timeout=60) as client:
        answer = client.get(address)
        while True:
            if answer.is_redirect:
                there = urllib.parse.urljoin(str(answer.url), answer.headers["location"])
                if there.startswith(back):
                    return there
                answer = client.get(there)
                continue
            assert answer.status_code == 200, answer.text
            forms = dict(re.findall(r'<form id="(\w+)" method="post" action="([^"]+)"', answer.text))
            which = "abort" if deny else "login" if "login" in forms else "consent"
            answer = client.post(urllib.parse.urljoin(str(answer.url), forms[which]), data={"login": user})


if __name__ == "__main__":
    user, address = sys.argv[1:]
    print(httpx2.get(walk(address, user, deny=user == "-"), trust_env=False, timeout=60).text)
