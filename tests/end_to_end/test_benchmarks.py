"""Benchmarks that nobody has run for a while still run."""

import pytest

from tests.processes import run_module

pytestmark = pytest.mark.once


def test_the_benchmark_of_the_api_compares_its_contenders() -> None:
    ended = run_module("benchmarks", "api", "--quick")
    assert ended.returncode == 0, ended.stderr
    contenders = [line.partition("  ")[0] for line in ended.stdout.splitlines()]
    assert contenders == ["== api", "plain Django view", "bare APIView", "guarded APIView"]


def test_a_benchmark_says_which_package_it_lacks() -> None:
    ended = run_module("benchmarks", "providers", "--quick")
    assert ended.stderr == "compares with pybreaker, which is not installed here: make bench ARGS=providers\n"
