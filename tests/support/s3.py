"""A real S3 endpoint for the tests: s3proxy, signatures checked, files in a directory of its own."""

from __future__ import annotations

import secrets
import subprocess
import time
import uuid
from pathlib import Path

from lowwater.runtime.config import LakeConfig
from lowwater_fleet.kafka.jars import find_jars, find_java
from lowwater_fleet.runner.ports import free_port, is_listening

BUCKET = "lowwater-tests"
ACCESS_KEY_ID = "lowwater-tests"
#: the environment variable that the configs refer to
SECRET_VARIABLE = "S3_TEST_SECRET_ACCESS_KEY"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0


class S3Server:
    """`start`, then `lake_config()`. Raises ConfigError where Java or the jar is missing."""

    def __init__(self, directory: Path) -> None:
        self.secret = secrets.token_hex(16)
        self.port = free_port()
        self._directory = directory
        self._log = directory / "s3proxy.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lake_config(self, prefix: str | None = None, **options: str) -> LakeConfig:
        """A lake that no other test uses, unless a prefix is given."""
        mine = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": ACCESS_KEY_ID,
            "secret_access_key": f"${{env:{SECRET_VARIABLE}}}",
            "allow_http": "true",
        }
        return LakeConfig(uri=f"s3://{BUCKET}/{prefix or uuid.uuid4().hex}", options=mine | options)

    def start(self) -> None:
        java = find_java()
        jar = next(find_jars("s3").glob("s3proxy-*.jar"))
        data = self._directory / "data"
        # with this backend a bucket is a directory; no request is needed to make one
        (data / BUCKET).mkdir(parents=True)
        properties = self._directory / "s3proxy.properties"
        properties.write_text(
            f"s3proxy.endpoint={self.endpoint}\n"
            "s3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={ACCESS_KEY_ID}\n"
            f"s3proxy.credential={self.secret}\n"
            "jclouds.provider=filesystem-nio2\n"
            f"jclouds.filesystem.basedir={data}\n"
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", jar, "--properties", properties],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + START_SECONDS_MAX
        while not is_listening(self.port):
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise AssertionError(f"s3proxy did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
