"""Adds up the JUnit files in a folder and prints `N passed, N failed` as the last line. Exits 1 when any failed.

usage: count_tests.py FOLDER MORE_FAILURES
"""
import pathlib
import sys
import xml.etree.ElementTree as tree


def count(path: pathlib.Path) -> tuple[int, int, int]:
    passed = failed = skipped = 0
    for case in tree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main() -> int:
    folder, more = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    passed = failed = skipped = 0
    for path in sorted(folder.glob("*.xml")):
        p, f, s = count(path)
        print(f"{path.stem:16} {p:5} passed {f:5} failed {s:5} skipped")
        passed, failed, skipped = passed + p, failed + f, skipped + s
    failed += more
    if skipped:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
