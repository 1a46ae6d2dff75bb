"""An OpenID Connect provider on loopback: it signs tokens, publishes its keys, and can be away."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.secrecy import issued

ISSUER, AUDIENCE = "https://id.example.org", "traincost"


class Issuer:
    """A provider with an RSA key and one of an elliptic curve."""

    def __init__(self) -> None:
        self.private: dict[str, Any] = {
            "first": rsa.generate_private_key(public_exponent=65537, key_size=2048),
            "curve": ec.generate_private_key(ec.SECP256R1()),
        }
        self.published = ["first", "curve"]
        self.status, self.asked = 200, 0
        self.address = ""

    def jwks(self) -> bytes:
        """The public keys that it publishes."""
        keys = []
        for name in self.published:
            algorithm = jwt.get_algorithm_by_name("ES256" if name == "curve" else "RS256")
            keys.append({**json.loads(algorithm.to_jwk(self.private[name].public_key())), "kid": name, "use": "sig"})
        return json.dumps({"keys": [*keys, {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}, {"kty": "EC"}]}).encode()

    def token(self, key: str = "first", algorithm: str = "RS256", **changed: Any) -> str:
        """A token that holds, but for what is changed; None leaves a claim out."""
        claims = {
            "iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": time(), "exp": time() + 600, "scope": "openid ml",
            **changed,
        }  # fmt: skip
        told = {name: value for name, value in claims.items() if value is not None}
        token = jwt.encode(told, self.private[key], algorithm=algorithm, headers={"kid": key})
        issued(token)
        return token

    def public_text(self, key: str) -> bytes:
        """A public key as a careless verifier would take it for a secret."""
        found: bytes = self.private[key].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return found


@contextmanager
def issuing() -> Iterator[Issuer]:
    """A provider that answers on loopback."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked += 1
            self.send_response(issuer.status)
            self.end_headers()
            self.wfile.write(issuer.jwks())

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.address = f"http://127.0.0.1:{server.server_port}/jwks.json"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
