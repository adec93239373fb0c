"""Runs the vectors in proto/testvectors/writ that concern the token alone: python3 clients/python/test_verify_writ.py"""
import glob, json, os, unittest

from verify_writ import key_set, verify

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../proto/testvectors/writ")
# What verify_writ leaves to its caller: the schema of the claims, trusted issuers and namespaces, and what is about to be done.
LEFT_OUT = {"UNKNOWN_ISSUER", "NAMESPACE", "TOOL", "PROVIDER", "FINGERPRINT", "ARGUMENTS", "SCOPES"}
SCHEMA = {"claim-in-capitals", "unknown-claim", "missing-claim", "unknown-class", "time-as-text", "time-with-fraction", "lifetime-of-a-day"}


class Vectors(unittest.TestCase):
    def test_vectors(self):
        with open(os.path.join(FOLDER, "keys.json")) as f:
            keys = key_set(f.read())
        seen = 0
        for path in sorted(glob.glob(os.path.join(FOLDER, "[0-9]*.json"))):
            with open(path) as f:
                v = json.load(f)
            name = os.path.basename(path)[3:-5]
            if v.get("reason") in LEFT_OUT or name in SCHEMA:
                continue
            seen += 1
            with self.subTest(name):
                args = (v["token"], keys, v["verifier"]["audience"], v["verifier"]["now"], v["verifier"]["skew_seconds"])
                if v["accept"]:
                    self.assertEqual(verify(*args), v["claims"])
                else:
                    with self.assertRaises((ValueError, KeyError)):
                        verify(*args)
        self.assertGreater(seen, 20)


if __name__ == "__main__":
    unittest.main()
