"""What the errors of providers mean, whichever client reports them."""

import json
import pickle
import socket
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google.genai import errors as google_errors

from agentkit.core.contracts.errors import (
    AuthError,
    ContextOverflowError,
    PermanentError,
    ProviderError,
    TransientError,
)
from agentkit.models.adapters.failures import failure_from, failure_of, provider_errors

REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1/messages")


def through_anthropic(status: int, body: Any, headers: dict[str, str] | None = None) -> BaseException:
    """The exception that Anthropic's client makes of a response."""
    response = httpx2.Response(status, json=body, headers=headers, request=REQUEST)
    client = anthropic.Anthropic(api_key="none", base_url="http://127.0.0.1")
    return client._make_status_error_from_response(response)


def through_openai(status: int, body: Any, headers: dict[str, str] | None = None) -> BaseException:
    """The exception that OpenAI's client makes of a response."""
    response = httpx2.Response(status, json=body, headers=headers, request=REQUEST)
    client = openai.OpenAI(api_key="none", base_url="http://127.0.0.1")
    return client._make_status_error_from_response(response)


def through_google(status: int, body: Any, headers: dict[str, str] | None = None) -> BaseException:
    """The exception that Google's client makes of a response."""
    kind = google_errors.ClientError if status < 500 else google_errors.ServerError
    return kind(status, body, None)


def said(kind: str, message: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **more}}


def google(status: str, message: str, code: int = 400, **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, **more}}


def found_in(error: BaseException, provider: str = "p") -> ProviderError:
    found = failure_of(error, provider)
    assert found is not None
    return found


OVERFLOWS = [
    (
        through_anthropic,
        400,
        said("invalid_request_error", "prompt is too long: 205000 tokens > 200000 maximum"),
        200_000,
    ),
    (
        through_anthropic,
        400,
        said(
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        ),
        200_000,
    ),
    (
        through_openai,
        400,
        {
            "error": {
                "message": "Your input exceeds the context window of this model.",
                "code": "context_length_exceeded",
            }
        },
        None,
    ),
    (
        through_openai,
        400,
        {
            "error": {
                "message": "This model's maximum context length is 128000 tokens. However, your messages resulted in "
                "130001 tokens.",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            }
        },
        128_000,
    ),
    (
        through_openai,  # llama.cpp
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size. try increasing the context size",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9_000,
                "n_ctx": 8_192,
            }
        },
        8_192,
    ),
    (
        through_openai,  # vLLM, older and newer
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 "
            "in the messages, 1000 in the completion).",
            "type": "BadRequestError",
            "code": 400,
        },
        4_096,
    ),
    (
        through_openai,
        400,
        {
            "error": {
                "message": "This model's maximum context length is 3 tokens. However, your request has 8 input tokens.",
                "type": "BadRequestError",
                "param": "input_tokens",
                "code": 400,
            }
        },
        None,
    ),
    (
        through_openai,  # xAI
        400,
        {"code": "invalid", "error": "This model's maximum prompt length is 131072 but the request contains 537812."},
        131_072,
    ),
    (
        through_google,
        400,
        google(
            "INVALID_ARGUMENT",
            "The input token count (1091639) exceeds the maximum number of tokens allowed (1048576).",
        ),
        1_048_576,
    ),
    (
        through_google,
        400,
        google("INVALID_ARGUMENT", "The input token count exceeds the maximum number of tokens allowed 1048576."),
        1_048_576,
    ),
]


@pytest.mark.parametrize(("through", "status", "body", "window"), OVERFLOWS)
def test_a_request_above_the_window_is_told_with_the_window_that_the_provider_names(
    through: Any, status: int, body: Any, window: int | None
) -> None:
    found = found_in(through(status, body))
    assert type(found) is ContextOverflowError
    assert found.window == window


TRANSIENT = [
    (through_anthropic, 429, said("rate_limit_error", "slow down"), {"retry-after": "12"}, 12.0),
    (through_anthropic, 529, said("overloaded_error", "Overloaded"), {}, None),
    (through_anthropic, 500, said("api_error", "Internal server error"), {"retry-after-ms": "250"}, 0.25),
    (through_anthropic, 408, said("timeout_error", "too slow"), {}, None),
    (
        through_openai,
        429,
        {
            "error": {
                "message": "Rate limit reached for a model. Please try again in 1m6.3s. See below",
                "code": "rate_limit_exceeded",
            }
        },
        {},
        66.3,
    ),
    (
        through_openai,
        503,
        {"error": {"message": "busy", "type": "server_error"}},
        {"retry-after": "Tue, 01 Dec 2026 04:00:30 GMT", "date": "Tue, 01 Dec 2026 04:00:00 GMT"},
        30.0,
    ),
    (
        through_google,
        429,
        google(
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details. limit: 32000",
            429,
            details=[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}],
        ),
        {},
        17.0,
    ),
    (through_google, 503, google("UNAVAILABLE", "The model is overloaded.", 503), {}, None),
]


@pytest.mark.parametrize(("through", "status", "body", "headers", "seconds"), TRANSIENT)
def test_a_fault_that_may_pass_says_how_long_to_wait(
    through: Any, status: int, body: Any, headers: dict[str, str], seconds: float | None
) -> None:
    found = found_in(through(status, body, headers))
    assert isinstance(found, TransientError)
    assert found.retry_after == seconds


PERMANENT = [
    (through_anthropic, 400, said("invalid_request_error", "messages: at least one message is required")),
    (through_anthropic, 400, said("invalid_request_error", "Your credit balance is too low to access the API.")),
    (through_anthropic, 402, said("billing_error", "pay")),
    (through_anthropic, 429, said("rate_limit_error", "no", details={"error_code": "enforced_spend_limit_reached"})),
    (through_anthropic, 404, said("not_found_error", "model: nobody")),
    (through_openai, 429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}),
    (
        through_openai,
        429,
        {
            "error": {
                "message": "Request too large for a model on tokens per min (TPM): Limit 30,000, Requested 40,000.",
                "code": "rate_limit_exceeded",
            }
        },
    ),
    (through_google, 400, google("INVALID_ARGUMENT", "bad schema")),
    (through_google, 429, google("RESOURCE_EXHAUSTED", "Quota exceeded for metric: free_tier, limit: 0", 429)),
]


@pytest.mark.parametrize(("through", "status", "body"), PERMANENT)
def test_what_is_refused_every_time_is_permanent_and_so_is_a_429_about_billing(
    through: Any, status: int, body: Any
) -> None:
    found = found_in(through(status, body))
    assert type(found) is PermanentError
    assert str(status) in str(found)


AUTH = [
    (through_anthropic, 401, said("authentication_error", "invalid x-api-key"), anthropic.AuthenticationError),
    (through_anthropic, 403, said("permission_error", "no"), anthropic.PermissionDeniedError),
    (
        through_openai,
        401,
        {"error": {"message": "Incorrect API key provided: sk-abcdef123456789.", "code": "invalid_api_key"}},
        openai.AuthenticationError,
    ),
    (through_google, 403, google("PERMISSION_DENIED", "no", 403), google_errors.ClientError),
    (
        through_google,
        400,
        google("INVALID_ARGUMENT", "API key not valid.", details=[{"reason": "API_KEY_INVALID"}]),
        google_errors.ClientError,
    ),
]


@pytest.mark.parametrize(("through", "status", "body", "kind"), AUTH)
def test_an_auth_error_is_also_the_clients_own_type_and_can_be_pickled(
    through: Any, status: int, body: Any, kind: type[BaseException]
) -> None:
    found = found_in(through(status, body))
    assert isinstance(found, AuthError)
    assert isinstance(found, kind)
    copy = pickle.loads(pickle.dumps(found))
    assert type(copy) is AuthError
    assert copy.args == found.args


def test_a_broken_connection_may_pass_and_a_bug_is_no_failure_of_the_provider() -> None:
    for error in (
        anthropic.APIConnectionError(request=REQUEST),
        anthropic.APITimeoutError(request=REQUEST),
        openai.APIConnectionError(request=REQUEST),
        httpx2.ReadError("gone"),
        httpx2.RemoteProtocolError("peer closed"),
        ConnectionResetError(),
        TimeoutError(),
    ):
        found = found_in(error)
        assert isinstance(found, TransientError), error
        assert found.retry_after is None
    assert failure_of(KeyError("x")) is None
    assert failure_of(FileNotFoundError("x")) is None
    assert failure_of(TypeError("create() got an unexpected argument")) is None


def test_the_cause_of_a_broken_connection_is_named_without_its_text() -> None:
    error = anthropic.APIConnectionError(request=REQUEST)
    error.__cause__ = httpx2.ConnectError("cannot reach http://user:secret@127.0.0.1")
    assert str(found_in(error, "anthropic")) == "anthropic: APIConnectionError (ConnectError): no whole answer came"


@pytest.mark.parametrize("cause", [httpx2.LocalProtocolError("x"), httpx2.UnsupportedProtocol("x")])
def test_what_cannot_leave_this_machine_is_not_sent_again(cause: Exception) -> None:
    """A header with a line break, an address without a scheme: the caller's mistakes, hidden in the client's error."""
    error = openai.APIConnectionError(request=REQUEST)
    error.__cause__ = cause
    assert isinstance(found_in(error), PermanentError)
    assert isinstance(found_in(cause), PermanentError)


def test_an_unresolved_name_is_a_fault_on_the_way() -> None:
    error = anthropic.APIConnectionError(request=REQUEST)
    error.__cause__ = socket.gaierror("no such host")
    assert isinstance(found_in(error), TransientError)


def test_an_error_inside_a_stream_means_the_same() -> None:
    overloaded = failure_from(said("overloaded_error", "Overloaded"), provider="anthropic")
    assert isinstance(overloaded, TransientError)
    assert str(overloaded) == "anthropic: Overloaded"
    assert isinstance(failure_from(said("invalid_request_error", "no")), PermanentError)
    assert isinstance(failure_from({"error": {"code": 502, "message": "bad gateway"}}), TransientError)
    failed = {"response": {"error": {"code": "rate_limit_exceeded", "message": "Please try again in 20ms."}}}
    found = failure_from(failed)
    assert isinstance(found, TransientError)
    assert found.retry_after == 0.02
    over = failure_from(said("invalid_request_error", "prompt is too long: 300 tokens > 299 maximum"))
    assert isinstance(over, ContextOverflowError)
    assert over.window == 299


def test_an_error_wrapped_by_a_gateway_is_unwrapped() -> None:
    inner = json.dumps(
        google("INVALID_ARGUMENT", "The input token count exceeds the maximum number of tokens allowed 99999.")
    )
    found = failure_from({"error": {"message": inner, "code": 400, "status": "Bad Request"}})
    assert isinstance(found, ContextOverflowError)
    assert found.window == 99_999


def test_no_message_holds_a_credential_and_none_is_long() -> None:
    for secret in ("sk-ant-REDACTED", "AIzaSyA1234567890", "Bearer abc.def", "https://h/x?key=hunter2hunter2"):
        message = str(failure_from({"error": {"message": f"denied {secret} here"}}, status=401))
        assert secret.split()[-1].split("=")[-1] not in message
        assert "here" in message
    assert len(str(failure_from({"error": {"message": "x" * 10_000}}))) <= 400
    assert str(failure_from({"error": {"message": "half \ud800 pair"}})) == "half \ufffd pair"


ODD: list[Any] = [
    None,
    "",
    "<html>",
    5,
    [],
    {},
    {"error": None},
    {"error": []},
    {"error": {"message": 3}},
    [{"error": {}}],
]


@pytest.mark.parametrize("body", ODD)
def test_an_odd_body_is_permanent_and_never_raises(body: Any) -> None:
    assert isinstance(failure_from(body), PermanentError)


def test_the_cause_is_chained_and_our_own_errors_pass_unchanged() -> None:
    cause = through_anthropic(529, said("overloaded_error", "Overloaded"))
    with pytest.raises(TransientError) as caught, provider_errors("anthropic"):
        raise cause
    assert caught.value.__cause__ is cause
    own = PermanentError("ours")
    with pytest.raises(PermanentError) as caught_own, provider_errors():
        raise own
    assert caught_own.value is own
    with pytest.raises(KeyError), provider_errors():
        raise KeyError("a bug")
