"""The double's options: vLLM's own command line as the emitters write it, and what only the double knows.

Flags of vLLM that change nothing here are accepted and listed; their values are the real engine's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from disaggc.simengine.connector import Connector, OptionError, read_connector
from disaggc.simengine.flags import split
from disaggc.simengine.timing import DEFAULT, Timing, TimingError, read_timing
from disaggc.spec.near import nearest

_WHOLE_NUMBERS = {
    "port": 8000, "max-model-len": 8192, "max-num-seqs": 256, "max-num-batched-tokens": 8192, "block-size": 16,
    "shutdown-timeout": 0, "stream-interval": 1, "tensor-parallel-size": 1, "pipeline-parallel-size": 1,
    "data-parallel-size": 1, "decode-context-parallel-size": 1,
}  # fmt: skip
_TEXTS = {"host": "0.0.0.0", "dtype": "auto", "kv-cache-dtype": "auto", "api-key": "", "model": ""}  # noqa: S104 - vLLM's default
_JSON = {"kv-transfer-config", "speculative-config"}
_OWN = {
    "timing": "", "time-scale": "1", "kv-tokens": "", "admin-port": "", "admin-host": "127.0.0.1", "start-delay": "0",
    "engine-version": "0.33.0",
}  # fmt: skip
_READ = {
    *_WHOLE_NUMBERS,
    *_TEXTS,
    *_JSON,
    *_OWN,
    "served-model-name",
    "headless",
    "no-enable-prefix-caching",
    "enable-prompt-tokens-details",
    "disable-uvicorn-access-log",
    "uvicorn-log-level",
    "disable-access-log-for-endpoints",
}
_MOST_TOKENS = 4_000_000


class UnreadableError(OptionError):
    """A file that an option names cannot be used."""


@dataclass(frozen=True, slots=True)
class Options:
    """Everything one double is started with."""

    model: str
    served: tuple[str, ...]
    host: str
    port: int
    api_key: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    tp: int
    pp: int
    dp: int
    dcp: int
    dtype: str
    kv_cache_dtype: str
    caching: bool
    details: bool
    headless: bool
    shutdown_s: float
    stream_interval: int
    connector: Connector | None
    speculative: str
    ignored: tuple[str, ...]
    timing: Timing
    scale: float
    kv_tokens: int
    admin: tuple[str, int] | None
    start_delay_s: float
    version: str
    access_log: bool
    unlogged: frozenset[str]
    """Paths whose answers are not logged."""
    env: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str, default: float) -> float:
        """A number in the environment."""
        try:
            return float(self.env.get(name, default))
        except ValueError:
            raise OptionError(f"{name} is not a number: {self.env[name]}") from None


def read_options(arguments: Sequence[str], env: Mapping[str, str]) -> Options:
    """The options of `serve MODEL <flags>`; own options may stand in the environment as DISAGGC_SIM_*."""
    given, model = split(arguments, _OWN, version=_version(arguments, env))
    _check_environment(env)
    own = {
        name: given[name][-1] if given.get(name) else env.get(_variable(name), default)
        for name, default in _OWN.items()
    }
    numbers = {name: _whole(name, given, default) for name, default in _WHOLE_NUMBERS.items()}
    texts = {name: given[name][-1] if given.get(name) else default for name, default in _TEXTS.items()}
    model = model or texts["model"]
    if not model:
        raise OptionError("no model: write `serve MODEL`")
    timing = _timing(own["timing"])
    scale = _positive("time-scale", own["time-scale"])
    admin = (own["admin-host"], _port("admin-port", own["admin-port"])) if own["admin-port"] else None
    return Options(
        model=model,
        served=tuple(given.get("served-model-name") or [model]),
        host=texts["host"],
        port=_port("port", str(numbers["port"])),
        api_key=texts["api-key"] or env.get("VLLM_API_KEY", ""),
        max_model_len=numbers["max-model-len"],
        max_num_seqs=numbers["max-num-seqs"],
        max_num_batched_tokens=numbers["max-num-batched-tokens"],
        block_size=numbers["block-size"],
        tp=numbers["tensor-parallel-size"],
        pp=numbers["pipeline-parallel-size"],
        dp=numbers["data-parallel-size"],
        dcp=numbers["decode-context-parallel-size"],
        dtype=texts["dtype"],
        kv_cache_dtype=texts["kv-cache-dtype"],
        caching="no-enable-prefix-caching" not in given,
        details="enable-prompt-tokens-details" in given,
        headless="headless" in given,
        shutdown_s=numbers["shutdown-timeout"],
        stream_interval=numbers["stream-interval"],
        connector=read_connector(given.get("kv-transfer-config")),
        speculative=(given.get("speculative-config") or [""])[-1],
        ignored=tuple(sorted(set(given) - _READ)),
        timing=timing,
        scale=scale,
        kv_tokens=_kv_tokens(own["kv-tokens"], numbers),
        admin=admin,
        start_delay_s=_not_negative("start-delay", own["start-delay"]),
        version=own["engine-version"],
        access_log=_logs_answers(given),
        unlogged=frozenset(",".join(given.get("disable-access-log-for-endpoints") or ()).split(",")),
        env=env,
    )


def _kv_tokens(given: str, numbers: Mapping[str, int]) -> int:
    """Tokens of KV of the whole replica; by default what its sequences can use, within reason."""
    most = numbers["max-num-seqs"] * numbers["max-model-len"] * numbers["data-parallel-size"]
    tokens = int(_positive("kv-tokens", given)) if given else min(most, _MOST_TOKENS)
    limit = numbers["max-model-len"]
    if tokens < limit:
        raise OptionError(f"{tokens} tokens of KV do not hold one request of --max-model-len {limit}")
    return tokens


def _logs_answers(given: Mapping[str, list[str]]) -> bool:
    level = (given.get("uvicorn-log-level") or ["info"])[-1]
    return level in ("info", "debug", "trace") and "disable-uvicorn-access-log" not in given


def _variable(name: str) -> str:
    return f"DISAGGC_SIM_{name.upper().replace('-', '_')}"


def _version(arguments: Sequence[str], env: Mapping[str, str]) -> str:
    """The vLLM version to stand in for, which decides what the other flags mean."""
    found = env.get(_variable("engine-version"), _OWN["engine-version"])
    for word, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name == "--engine-version":
            found = value if equals else following
    return found


def _check_environment(env: Mapping[str, str]) -> None:
    known = {_variable(name) for name in _OWN}
    for name in sorted(env):
        if name.startswith("DISAGGC_SIM_") and name not in known:
            near = nearest(name, known)
            raise OptionError(
                f"the variable {name} is none of ours{f'; did you mean {near}?' if near else ''}"
            )


def _whole(name: str, given: Mapping[str, list[str]], default: int) -> int:
    if name not in given:
        return default
    text = given[name][-1]
    if not text.isdecimal() or (int(text) < 1 and name != "shutdown-timeout"):
        raise OptionError(f"--{name} is not a whole number above 0: {text}")
    return int(text)


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e12:
        raise OptionError(f"--{name} is not a number above 0: {text}")
    return value


def _not_negative(name: str, text: str) -> float:
    return 0.0 if text in ("0", "0.0") else _positive(name, text)


def _port(name: str, text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise OptionError(f"--{name} is not a port: {text}")
    return int(text)


def _timing(path: str) -> Timing:
    if not path:
        return DEFAULT
    try:
        return read_timing(Path(path).read_bytes())
    except OSError as exc:
        raise UnreadableError(f"the timing table cannot be read: {exc}") from None
    except TimingError as exc:
        raise UnreadableError(f"{path} is not a timing table:\n{exc}") from None
