"""Reports the processes of foreign clients that hung and were killed (`tests.kit.isolated`) with the test that ran."""

import sys
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    isolated = sys.modules.get("tests.kit.isolated")  # most tests have no foreign client
    if call.when == "call" and isolated is not None:
        report.user_properties += [("summary", f"{report.nodeid}: {said}") for said in isolated.HUNG]
        isolated.HUNG.clear()
    return report
