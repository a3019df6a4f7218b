"""The examples of "Write a provider" and of the reference work as they stand on the page."""

import re
import sys
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from providers import ProviderBadRequestError, ProviderExecutionContext, RetryPolicy, calling, registry
from providers.adapters import clients
from providers.models import ProviderHealthState
from tests.processes import ROOT
from tests.providers.scripted_providers import TENANT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

PAGE = ROOT / "docs" / "how-to" / "write-a-provider.md"
REFERENCE = ROOT / "docs" / "reference" / "providers.md"


def example(about: str, page: Path = PAGE) -> str:
    """The block of Python in which this stands."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if about in block]
    return str(code)


def run(code: str) -> Any:
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102 (our own page)
    return SimpleNamespace(**names)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The page's provider, asking the page's server."""
    (tmp_path / "shop_providers.py").write_text(example("class Rank("))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RANK_TOKEN", "sk-live-1234")
    server = ThreadingHTTPServer(("127.0.0.1", 0), run(example("class RankServer")).RankServer)
    Thread(target=server.serve_forever, daemon=True).start()
    caller = run(example("def fetch_rank(tenant_id"))
    caller.Rank.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    yield caller
    clients.close()
    server.shutdown()
    server.server_close()
    sys.modules.pop("shop_providers")


def test_the_provider_of_the_page_is_called_as_the_page_says(shop: Any) -> None:
    assert shop.fetch_rank(TENANT, "tea") == {"rank": 3}
    assert ProviderHealthState.objects.get().success_rate_1h == 1.0


@pytest.mark.parametrize(("keyword", "said"), [("coffee/../tea", "no such keyword"), ("", "a keyword is needed")])
def test_what_the_provider_of_the_page_refuses_is_raised(shop: Any, keyword: str, said: str) -> None:
    with pytest.raises(ProviderBadRequestError, match=said):
        shop.fetch_rank(TENANT, keyword)


def test_the_made_up_providers_of_the_page_do_as_they_are_told() -> None:
    page = run(example("class MadeUpRank"))
    page.MadeUpRank.retry_policy = RetryPolicy(max_attempts=3, base_delay_seconds=0)
    asked: dict[str, Any] = {"tenant_id": TENANT, "operation": "snapshot", "payload": {}}
    for provider, attempts in ((page.always_third, 1), (page.down_at_first, 3)):
        result = provider.execute(**asked, context=ProviderExecutionContext(correlation_id="page"))
        assert (result.payload, len(result.attempts)) == ({"rank": 3}, attempts)


def test_the_fallback_of_a_function_answers_as_the_reference_says() -> None:
    fetch_rank = run(example("def last_known", REFERENCE)).fetch_rank
    with calling(tenant_id=TENANT):
        assert (fetch_rank("tea"), fetch_rank("milk")) == (3, None)
    registry.forget("rank", "rank_or_last_known")
