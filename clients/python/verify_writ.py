"""Verify a writ with Python's standard library and the openssl program.

    verify_writ.py KEY_SET.json AUDIENCE < token      prints the claims, or why the writ is refused

What an executor still has to do itself is in proto/writ.schema.json: compare tool, provider, fingerprint, arguments
(args.mac is HMAC-SHA256 of the argument bytes under args.salt) and scopes, and take the claim.
"""
import base64, json, os, subprocess, sys, tempfile, time


def decode(text):  # base64url in its one canonical spelling
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:
        raise ValueError("MALFORMED: base64url that is not canonical")
    return raw


def parse(raw):  # JSON in which each name stands once
    def once(pairs):
        if len(dict(pairs)) != len(pairs):
            raise ValueError("MALFORMED: a name stands twice")
        return dict(pairs)
    return json.loads(raw.decode("utf-8"), object_pairs_hook=once)


def verify(token, keys, audience, now=None, skew=5):
    head, body, signature = token.split(".")
    header, claims = parse(decode(head)), parse(decode(body))
    if header.get("alg") != "EdDSA" or header.get("typ") != "writ+jwt" or set(header) != {"alg", "typ", "kid"}:
        raise ValueError("ALGORITHM or HEADER: only alg EdDSA, typ writ+jwt and kid")
    if not ed25519(keys[header["kid"]], f"{head}.{body}".encode(), decode(signature)):
        raise ValueError("SIGNATURE: not that of key " + header["kid"])
    now = time.time() if now is None else now
    if claims["aud"] != audience or not claims["nbf"] - skew <= now < claims["exp"] + skew:
        raise ValueError("AUDIENCE, NOT_YET_VALID or EXPIRED")
    return claims


def ed25519(key, message, signature):
    der = bytes.fromhex("302a300506032b6570032100") + key  # RFC 8410
    with tempfile.TemporaryDirectory() as folder:
        for name, data in (("key", der), ("message", message), ("signature", signature)):
            with open(os.path.join(folder, name), "wb") as f:
                f.write(data)
        return subprocess.run(["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER", "-inkey", "key",
                               "-in", "message", "-sigfile", "signature"], cwd=folder, capture_output=True).returncode == 0


def key_set(text):
    return {k["kid"]: decode(k["x"]) for k in json.loads(text)["keys"] if k["crv"] == "Ed25519"}


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        keys = key_set(f.read())
    try:
        print(json.dumps(verify(sys.stdin.read().strip(), keys, sys.argv[2]), indent=2))
    except (ValueError, KeyError) as e:
        sys.exit(f"refused: {e}")
