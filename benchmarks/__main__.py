"""`python -m benchmarks [NAME …] [--OPTION …]`: run the named benchmarks, or all of them; options are theirs."""

import pkgutil
import sys
from importlib import import_module

import benchmarks


def main() -> None:
    known = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name != "__main__"]
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")] or known
    if unknown := [name for name in chosen if name not in known]:
        sys.exit(f"no benchmark named {unknown[0]!r}; there are: {', '.join(known)}")
    sys.argv[1:] = [option for option in sys.argv[1:] if option.startswith("-")]
    for name in chosen:
        print(f"== {name}", flush=True)
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
