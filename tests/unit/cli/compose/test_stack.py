"""A stack is only taken as a whole, and a container that ends by itself ends the run."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.cli.compose.conftest import NODE_SERVICES, Script

from blockyard.cli.compose import stack as stack_module
from blockyard.cli.compose.stack import ComposeStack
from blockyard.cli.demo_plan import FULL
from blockyard.core.errors import ConfigurationError, ProcessEndedError, ServerStartError

NODES = [f"{service}-{name}" for service in NODE_SERVICES for name in ("a", "b")]


@pytest.fixture
async def stack(script: Script) -> AsyncIterator[ComposeStack]:
    stack = ComposeStack(script.command, FULL, lambda _: None)
    yield stack
    await stack.http.aclose()


async def test_a_stack_that_does_not_run_as_a_whole_is_refused_with_the_way_to_start_it(
    script: Script, stack: ComposeStack
) -> None:
    script.on("config", '{"name": "p", "services": {' + ", ".join(f'"{name}": {{}}' for name in NODES) + "}}")
    script.containers([name for name in NODES if name != "engine-b"], ["engine-b"])
    with pytest.raises(ServerStartError, match=r"--profile demo up --detach --wait.*missing=engine-b") as caught:
        await stack.__aenter__()
    assert caught.value.fields["missing"] == "engine-b"


async def test_compose_files_without_a_second_node_are_refused(script: Script, stack: ComposeStack) -> None:
    script.on("config", '{"name": "p", "services": {"block-manager-a": {}}}')
    with pytest.raises(ConfigurationError, match=r"missing=.*engine-b"):
        await stack.__aenter__()


async def test_a_container_that_ends_by_itself_is_named_with_its_log(
    script: Script, stack: ComposeStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_module, "_CHECK_SECONDS", 0.0)
    await stack.check()  # nothing is known yet
    stack.expect(await script.project(), {"engine-b", "nats"})
    script.containers(["engine-b", "nats"], ["engine-a"], keep=False)
    await stack.check()
    script.containers(["engine-b"], ["nats", "engine-a"])
    script.on("logs --no-color --no-log-prefix --tail 15 nats", "no space left")
    with pytest.raises(ProcessEndedError, match=r"nats: exited with 137; end of its log:\nno space left"):
        await stack.check()


async def test_containers_are_not_asked_for_all_the_time(script: Script, stack: ComposeStack) -> None:
    stack.expect(await script.project(), {"nats"})
    await stack.check()
    assert script.asked() == ["config --format json"]
