import pytest

from ergon_site.access.core import terms
from ergon_site.access.core.terms import LONGEST_CERTIFICATE as LONGEST, UnusableIdentityError


@pytest.mark.parametrize("text", ["CN=press,O=Plant A", "CN=J\\C3\\BCrgen", "AB:CD:01", "x" * LONGEST])
def test_an_identity_is_kept_letter_by_letter(text: str) -> None:
    assert terms.certificate_identity(f" {text}\t") == text


@pytest.mark.parametrize("text", ["", "  ", "x" * (LONGEST + 1), "CN=a\nb", "CN=a\x00", "CN=Jürgen"])
def test_what_no_proxy_tells_is_no_identity(text: str) -> None:
    with pytest.raises(UnusableIdentityError, match="1 to 500 printable ASCII characters"):
        terms.certificate_identity(text)
