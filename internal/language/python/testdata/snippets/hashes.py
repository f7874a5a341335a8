import hashlib, hmac, base64, secrets
print(hashlib.sha256(b"a").hexdigest()[:16], hashlib.md5(b"a").hexdigest(), hashlib.blake2b(b"a", digest_size=8).hexdigest())
print(hmac.new(b"k", b"m", "sha1").hexdigest(), base64.urlsafe_b64encode(b"\xff\xfe"))
print(len(secrets.token_hex(8)), secrets.token_hex(8) != secrets.token_hex(8))

# Output:
# ca978112ca1bbdca 0cc175b9c0f1b6a831c399e269772661 40f89e395b66422f
# 772b71c8a2997e768be01d9711e4a4f34a24ef33 b'__4='
# 16 True
