"""The stock OpenAI client against the server: answers, streams, tools, seeds, usage and errors."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from burnish.engine.local import LocalEngine
from burnish.model.renderer import Renderer
from burnish.model.weights import load_model
from burnish.types import Message
from tests.serve.running import Running, fake, running, saying, spelling

USER: Any = [{"role": "user", "content": "How many lines?"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a text file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
]
CALL = '<tool_call>{"name": "read_file", "arguments": {"path": "notes.txt"}}</tool_call>'


async def ask(server: Running, **options: Any) -> Any:
    return await server.client.chat.completions.create(**{"model": "tiny", "messages": USER, **options})


async def stream(server: Running, **options: Any) -> list[Any]:
    return [chunk async for chunk in await ask(server, stream=True, **options)]


def text_of(chunks: list[Any], index: int = 0) -> str:
    choices = [c for chunk in chunks for c in chunk.choices if c.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


async def test_a_completion(renderer: Renderer) -> None:
    async with running(renderer, await fake(renderer, saying(renderer, "Seven lines."))) as server:
        answer = await ask(server)
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", "Seven lines.")
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    prompt = renderer.start([Message("user", "How many lines?")])
    output = renderer.demonstrate(Message("assistant", "Seven lines."))
    assert answer.usage.prompt_tokens == len(prompt)
    assert answer.usage.completion_tokens == len(output)
    assert answer.usage.total_tokens == len(prompt) + len(output)
    assert (answer.model, answer.object, answer.system_fingerprint) == (
        "tiny",
        "chat.completion",
        "weights-7",
    )


async def test_a_stream(renderer: Renderer) -> None:
    text = "Zeilen: sieben, naïve façade, 日本語 🎉."
    async with running(renderer, await fake(renderer, spelling(renderer, text))) as server:
        whole = await ask(server)
        chunks = await stream(server, stream_options={"include_usage": True})
    assert whole.choices[0].message.content == text
    assert text_of(chunks) == text
    assert len(chunks) > 10
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)
    assert len({chunk.id for chunk in chunks}) == 1


async def test_usage_is_streamed_only_on_request(renderer: Renderer) -> None:
    async with running(renderer, await fake(renderer, saying(renderer, "Yes."))) as server:
        chunks = await stream(server)
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


async def test_the_synchronous_client(renderer: Renderer) -> None:
    async with running(renderer, await fake(renderer, saying(renderer, "Yes."))) as server:

        def work() -> tuple[Any, list[Any], Any]:
            with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
                whole = client.chat.completions.create(model="tiny", messages=USER)
                chunks = list(client.chat.completions.create(model="tiny", messages=USER, stream=True))
                return whole.choices[0].message.content, chunks, client.models.list().data

        content, chunks, models = await asyncio.to_thread(work)
    assert (content, text_of(chunks), [model.id for model in models]) == ("Yes.", "Yes.", ["tiny"])


@pytest.mark.parametrize("streamed", [False, True])
async def test_tools_there_and_back(renderer: Renderer, streamed: bool) -> None:
    prompts = []
    say = saying(renderer, f"I'll look.\n{CALL}", "Two lines.")

    def rule(prompt_ids: Any) -> Any:
        prompts.append(renderer.decode(prompt_ids))
        return say(prompt_ids)

    async with running(renderer, await fake(renderer, rule)) as server:
        if streamed:
            chunks = await stream(server, tools=TOOLS)
            content = text_of(chunks)
            calls = [call for c in chunks for call in c.choices[0].delta.tool_calls or ()]
            finish = chunks[-1].choices[0].finish_reason
        else:
            answer = (await ask(server, tools=TOOLS, tool_choice="auto")).choices[0]
            content, calls = answer.message.content, answer.message.tool_calls
            finish = answer.finish_reason
        assert (content, finish, len(calls)) == ("I'll look.\n", "tool_calls", 1)
        assert (calls[0].type, calls[0].function.name) == ("function", "read_file")
        assert json.loads(calls[0].function.arguments) == {"path": "notes.txt"}
        echo = {"role": "assistant", "content": content, "tool_calls": [_plain(calls[0])]}
        result = {"role": "tool", "tool_call_id": calls[0].id, "content": "one\ntwo"}
        second = await ask(server, messages=[*USER, echo, result], tools=TOOLS)
    assert second.choices[0].message.content == "Two lines."
    assert "read_file(path): Read a text file." in prompts[0]
    assert CALL in prompts[1]
    assert "one\ntwo" in prompts[1]


def _plain(call: Any) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}


async def test_the_whole_message_object_can_be_sent_back(renderer: Renderer) -> None:
    async with running(renderer, await fake(renderer, saying(renderer, CALL, "Done."))) as server:
        message = (await ask(server, tools=TOOLS)).choices[0].message
        assert message.content is None
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "text"}
        second = await ask(server, messages=[*USER, message, result], tools=TOOLS)
    assert second.choices[0].message.content == "Done."


async def test_call_ids_are_unique(renderer: Renderer) -> None:
    async with running(renderer, await fake(renderer, saying(renderer, CALL + CALL))) as server:
        answers = [await ask(server, tools=TOOLS, n=2) for _ in range(2)]
    ids = [call.id for answer in answers for choice in answer.choices for call in choice.message.tool_calls]
    assert len(set(ids)) == len(ids) == 8


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_malformed_call_is_content_and_no_call(renderer: Renderer, streamed: bool) -> None:
    text = f"First {CALL} then <tool_call>{{broken}}</tool_call>."
    async with running(renderer, await fake(renderer, spelling(renderer, text))) as server:
        if streamed:
            chunks = await stream(server, tools=TOOLS)
            assert text_of(chunks) == text
            assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks)
            assert chunks[-1].choices[0].finish_reason == "stop"
        else:
            choice = (await ask(server, tools=TOOLS)).choices[0]
            assert (choice.message.content, choice.message.tool_calls) == (text, None)
            assert choice.finish_reason == "stop"


async def test_with_tool_choice_none_the_model_is_not_told_of_tools(renderer: Renderer) -> None:
    prompts: list[str] = []

    def rule(prompt_ids: Any) -> Any:
        prompts.append(renderer.decode(prompt_ids))
        return renderer.demonstrate(Message("assistant", CALL))

    async with running(renderer, await fake(renderer, rule)) as server:
        choice = (await ask(server, tools=TOOLS, tool_choice="none")).choices[0]
    assert (choice.message.content, choice.finish_reason) == (CALL, "stop")
    assert "read_file" not in prompts[0]


@pytest.mark.parametrize("streamed", [False, True])
async def test_stop_strings_end_the_answer_and_the_generation(renderer: Renderer, streamed: bool) -> None:
    engine = await fake(renderer, spelling(renderer, "one two STOP three four five"))
    async with running(renderer, engine) as server:
        if streamed:
            chunks = await stream(server, stop=["STOP", "never"], stream_options={"include_usage": True})
            content, usage = text_of(chunks), chunks[-1].usage
            finish = chunks[-2].choices[0].finish_reason
        else:
            answer = await ask(server, stop="STOP")
            content, usage = answer.choices[0].message.content, answer.usage
            finish = answer.choices[0].finish_reason
        await engine.idle.wait()
    assert (content, finish) == ("one two ", "stop")
    assert usage.completion_tokens == len("one two STOP")
    assert engine.counters.sampled == len("one two STOP")


async def test_length_is_reported(renderer: Renderer) -> None:
    async with running(renderer, await fake(renderer, spelling(renderer, "abcdefgh"))) as server:
        answers = [await ask(server, max_tokens=3), await ask(server, max_completion_tokens=3)]
    for answer in answers:
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("abc", "length")
        assert answer.usage.completion_tokens == 3


async def test_seeds_give_the_same_again(renderer: Renderer) -> None:
    async with running(renderer, await fake(renderer, 3)) as server:
        options = {"temperature": 0.8, "max_tokens": 20}
        first, again, other = [(await ask(server, seed=seed, n=2, **options)).choices for seed in (5, 5, 6)]
        unseeded = [(await ask(server, **options)).choices[0].message.content for _ in range(2)]
        chunks = await stream(server, seed=5, n=2, **options)
    texts = [[choice.message.content for choice in choices] for choices in (first, again, other)]
    assert texts[0] == texts[1] == [text_of(chunks, 0), text_of(chunks, 1)]
    assert len({*texts[0], *texts[2], *unseeded}) == 6
    async with running(renderer, await fake(renderer, 3)) as server:
        repeated = [(await ask(server, **options)).choices[0].message.content for _ in range(5)]
    # The n-th request gets the same seed after a restart; the first three had brought their own.
    assert repeated[3:] == unseeded


async def test_n_answers_in_one_stream(renderer: Renderer) -> None:
    engine = await fake(renderer, saying(renderer, "one", "three words long", "six"))
    async with running(renderer, engine) as server:
        chunks = await stream(server, n=3, stream_options={"include_usage": True})
    assert [text_of(chunks, i) for i in range(3)] == ["one", "three words long", "six"]
    assert sum(c.choices[0].finish_reason == "stop" for c in chunks[:-1]) == 3
    assert chunks[-1].usage.completion_tokens == engine.counters.sampled


async def test_logprobs(renderer: Renderer) -> None:
    engine = await fake(renderer, 3)
    async with running(renderer, engine) as server:
        options = {"seed": 1, "max_tokens": 12, "logprobs": True}
        whole = (await ask(server, **options)).choices[0]
        chunks = await stream(server, **options)
        without = (await ask(server, seed=1, max_tokens=12)).choices[0]
    assert without.logprobs is None
    streamed = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert streamed == whole.logprobs.content
    assert len(streamed) == 12
    prompt = renderer.start([Message("user", "How many lines?")])
    first = whole.logprobs.content[0]
    mass = engine.probabilities(prompt, 1.0)
    matching = [float(p) for i, p in enumerate(mass) if renderer.decode((i,)) == first.token]
    assert any(abs(first.logprob - math.log(p)) < 1e-9 for p in matching)


async def test_content_in_parts_and_the_developer_role(renderer: Renderer) -> None:
    prompts: list[tuple[int, ...]] = []

    def rule(prompt_ids: Any) -> Any:
        prompts.append(tuple(prompt_ids))
        return renderer.demonstrate(Message("assistant", "Yes."))

    parts = [{"type": "text", "text": "Is it "}, {"type": "text", "text": "so?"}]
    async with running(renderer, await fake(renderer, rule)) as server:
        await ask(
            server,
            messages=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}],
        )
    assert prompts == [renderer.start([Message("system", "Be brief."), Message("user", "Is it so?")])]


async def test_models_are_listed_and_shown(renderer: Renderer) -> None:
    async with running(renderer, await fake(renderer, 1)) as server:
        listed = [model.id async for model in await server.client.models.list()]
        shown = await server.client.models.retrieve("tiny")
        with pytest.raises(openai.NotFoundError):
            await server.client.models.retrieve("other/one")
    assert (listed, shown.id, shown.owned_by) == (["tiny"], "tiny", "burnish")


async def test_an_unknown_model_is_404(renderer: Renderer) -> None:
    async with running(renderer, await fake(renderer, 1)) as server:
        with pytest.raises(openai.NotFoundError, match=r"no model 'huge'.*'tiny'") as caught:
            await ask(server, model="huge")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_an_invalid_request_names_the_field(renderer: Renderer) -> None:
    async with running(renderer, await fake(renderer, 1)) as server:
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(server, max_tokens=-4)
        assert (caught.value.param, caught.value.type) == ("max_tokens", "invalid_request_error")
        with pytest.raises(openai.BadRequestError, match="top_p") as caught:
            await ask(server, top_p=0.9)
        assert caught.value.param == "top_p"
        with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'top_k'"):
            await ask(server, extra_body={"top_k": 5})
        harmless = await ask(
            server, max_tokens=1, user="someone", top_p=1, frequency_penalty=0.0, logit_bias={}
        )
    assert harmless.usage.completion_tokens == 1


async def test_too_long_a_context_names_both_numbers(renderer: Renderer) -> None:
    prompt = len(renderer.start([Message("user", "How many lines?")]))
    async with running(renderer, await fake(renderer, 1, context=100), context=100) as server:
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(server, max_tokens=101 - prompt)
        assert "100" in str(caught.value)
        assert f"101 tokens ({prompt} in the messages, {101 - prompt} in the answer)" in str(caught.value)
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError, match="holds 100 tokens") as caught:
            await ask(server, messages=[{"role": "user", "content": "long " * 200}])
        assert caught.value.param == "messages"
        fits = await ask(server, max_tokens=100 - prompt)
        open_ended = await ask(server)
    assert fits.usage.total_tokens == open_ended.usage.total_tokens == 100


async def test_the_tiny_model_end_to_end(tiny: Path, renderer: Renderer) -> None:
    loaded = load_model(tiny)
    engine = LocalEngine(loaded.config, slots=4, context=512)
    await engine.load(loaded.state_dict(), version=2)
    try:
        async with running(renderer, engine, context=512) as server:
            options = {"seed": 11, "max_tokens": 24, "temperature": 0.9}
            whole, chunks, *_ = await asyncio.gather(
                ask(server, **options), stream(server, **options), ask(server, seed=12, max_tokens=8)
            )
            assert text_of(chunks) == whole.choices[0].message.content
            assert whole.usage.completion_tokens <= 24
            assert whole.system_fingerprint == "weights-2"
        assert engine.active == 0
    finally:
        await engine.close()
