import asyncio
import shutil
import ssl
import subprocess

import pytest

from tests.proxy.harness import Stack, prompt, read_reply, request, run


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return {"certificate": str(cert), "key": str(key)}


def test_tls_towards_clients(pem):
    async def go():
        async with Stack(table={"listen": {"tls": pem}}).up() as s:
            context = ssl.create_default_context(cafile=pem["certificate"])
            for stream in (False, True):
                reader, writer = await asyncio.open_connection("127.0.0.1", s.port, ssl=context)
                writer.write(request(prompt(stream=stream)))
                assert (await read_reply(reader)).status == 200
                writer.close()

    run(go())


def test_tls_towards_engines_checks_their_certificate(pem):
    async def go():
        for authority, status in ((pem["certificate"], 200), (None, 502)):
            stack = Stack(table={"engine_tls": {"ca": authority} if authority else {}})
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem["certificate"], pem["key"])
            for engine in (*stack.prefills, *stack.decodes):
                engine.tls = context
            async with stack.up() as s:
                assert (await s.ask(prompt())).status == status

    run(go())
