"""Which cells a request concerns, and how their answers become one."""

from __future__ import annotations

import pytest

from broker.http.cells import merging, routing
from broker.http.cells.pages import STEP_BYTES, marked
from broker.http.cells.routing import CellNames, NoCellError, Plan, planned
from broker.server.cells.directory import CellDirectory
from tests.wire.cells import names_in

NAMES = CellNames(0, 3, CellDirectory(0, 3).cell_of, CellDirectory(0, 3).split)


def plan(method: str, path: str, query: str = "") -> Plan:
    return planned(method, f"/api/v1{path}", query, NAMES)


@pytest.mark.parametrize(
    ("method", "path", "how"),
    [
        ("GET", "/queues", routing.LIST),
        ("GET", "/nodes", routing.LIST),
        ("POST", "/topics", routing.OWNER_OF),
        ("GET", "/broker", routing.EACH),
        ("GET", "/why", routing.EACH),
        ("GET", "/why/a%2Fb", routing.EACH),
        ("POST", "/producers/stop", routing.EACH),
        ("DELETE", "/connections/c1", routing.FIND),
        ("POST", "/trace", routing.FIND_OF),
        ("GET", "/session", routing.OWN),
        ("GET", "/live", routing.OWN),
        ("GET", "/docs/docs.js", routing.OWN),
        ("GET", "/policies", routing.HERE),
        ("GET", "/nothing", routing.HERE),
        ("PUT", "/queues", routing.HERE),
        ("GET", "/cluster", routing.HERE),
    ],
)
def test_a_request_is_answered_by(method: str, path: str, how: str) -> None:
    assert plan(method, path).how == how


@pytest.mark.parametrize("path", ["/queues/{}", "/queues/{}/messages", "/history/{}", "/explain/{}"])
def test_a_node_is_asked_for_in_its_cell(path: str) -> None:
    for cell in range(3):
        [name] = names_in(cell, 3, 1)
        assert plan("GET", path.format(name)).cell == cell
        said = plan("GET", path.format(f"%24cell%2F1%2F{name}"))
        assert (said.cell, said.is_said, said.path) == (1, True, f"/api/v1{path.format(name)}")
        assert plan("GET", path.format(name), "cell=2").cell == 2


def test_the_cell_is_taken_out_of_the_query() -> None:
    found = plan("GET", "/queues", "cell=1&filter=a%26b&node=x&node=y")
    assert (found.cell, found.search) == (1, "filter=a%26b&node=x&node=y")


def test_a_cell_is_moved_that_is_said_and_no_other() -> None:
    assert plan("POST", "/cluster/move", "cell=2").cell == 2
    with pytest.raises(NoCellError, match="say which one"):
        plan("POST", "/cluster/move")


@pytest.mark.parametrize("query", ["cell=3", "cell=-1", "cell=x", "cell=", "cell=%D9%A1", "cell=100000"])
def test_a_cell_that_there_is_not_is_refused(query: str) -> None:
    with pytest.raises(NoCellError):
        plan("GET", "/broker", query)


def test_pages_of_lists_hold_every_item_once() -> None:
    keys = {cell: [(each % 5 or None, f"{cell}.{each}") for each in range(40)] for cell in range(3)}
    for sort in ("depth", "-depth", "cell", "-cell"):
        found: list[tuple[int, str]] = []
        while True:
            items, total = merging.page(keys, sort, len(found), 7)
            assert total == 120
            if not items:
                break
            found += items
        assert sorted(found) == sorted((cell, name) for cell in keys for _, name in keys[cell])
    # An item without the attribute comes last either way.
    assert [int(name.partition(".")[2]) % 5 for _, name in merging.page(keys, "-depth", 0, 120)[0]][-24:] == [
        0
    ] * 24


def test_a_page_of_metrics_is_marked_line_by_line() -> None:
    lines = [b'a{queue="q %d"} 1\n' % each for each in range(STEP_BYTES // 8)]
    parts = [b"# HELP a Text of {braces}\n# TYPE a gauge\n", b"".join(lines), b"b 2\n", b""]
    found = b"".join(marked(parts, 7)).splitlines(keepends=True)
    assert found[:3] == [
        b"# HELP a Text of {braces}\n",
        b"# TYPE a gauge\n",
        b'a{cell="7",queue="q 0"} 1\n',
    ]
    assert found[-1] == b'b{cell="7"} 2\n'
    assert len(found) == len(lines) + 3


def test_families_are_merged_whatever_stands_in_labels() -> None:
    one = b'# HELP a A\n# TYPE a gauge\na{cell="0",q="# HELP a A"} 1\n# HELP b B\n# TYPE b gauge\n'
    two = b'# HELP b B\n# TYPE b gauge\nb{cell="1"} 2\n# HELP a A\n# TYPE a gauge\na{cell="1"} 3\n'
    text = b"".join(merging.metrics({0: one, 1: two}, {2: "gone"})).decode()
    assert text.splitlines()[2:] == [
        'sluice_cell_up{cell="0"} 1',
        'sluice_cell_up{cell="1"} 1',
        'sluice_cell_up{cell="2"} 0',
        *("# HELP a A", "# TYPE a gauge", 'a{cell="0",q="# HELP a A"} 1', 'a{cell="1"} 3'),
        *("# HELP b B", "# TYPE b gauge", 'b{cell="1"} 2'),
    ]


def test_the_figures_of_a_broker_are_added_up_and_the_worst_store_is_told() -> None:
    one = {"pid": 1, "version": "1", "uptime_s": 5.0, "flow_control": True, "holds": ["a"], "depth_msgs": 2}
    one |= {"storeState": "writing", "storeReason": "", "deadlocks": [{"nodes": ["x"]}], "rate_in": 0.5}
    two = one | {"pid": 2, "uptime_s": 9.0, "flow_control": False, "holds": ["a", "b"], "depth_msgs": 3}
    two |= {"storeState": "full", "storeReason": "no room", "deadlocks": []}
    found = merging.broker({0: one, 1: two}, {2: "gone"}, 1)
    assert (found["pid"], found["version"], found["uptime_s"]) == (2, "1", 9.0)
    assert (found["depth_msgs"], found["rate_in"], found["flow_control"]) == (5, 1.0, False)
    assert found["holds"] == ["a", "b"]
    assert (found["storeState"], found["storeReason"]) == ("full", "cell 1: no room")
    assert found["deadlocks"] == [{"nodes": ["x"], "cell": 0}]
    assert [row["cell"] for row in found["cells"]] == [0, 1, 2]
    assert found["cells"][2] == {"cell": 2, "error": "gone"}


def test_events_are_merged_by_their_time_and_cut() -> None:
    said = {0: [{"time": "1"}, {"time": "3"}], 1: [{"time": "2"}, {"time": "4"}]}
    told = [(each["time"], each["cell"]) for each in merging.events(said, 3)]
    assert told == [("2", 1), ("3", 0), ("4", 1)]


def test_the_history_is_added_up_second_by_second() -> None:
    rows = {
        "rows": [
            {"time": 10.1, "rate_in": 1.0, "rate_out": 0.5},
            {"time": 11.1, "rate_in": 2.0, "rate_out": 0},
        ]
    }
    other = {"rows": [{"time": 11.2, "rate_in": 3.0, "rate_out": 1.0}]}
    found = merging.history({0: rows, 1: other})["rows"]
    assert [(row["rate_in"], row["rate_out"]) for row in found] == [(1.0, 0.5), (5.0, 1.0)]


def test_a_cell_that_looks_between_two_seconds_is_counted_once_in_each() -> None:
    steady = {"rows": [{"time": 10.0 + second, "rate_in": 1.0, "rate_out": 0} for second in range(10)]}
    # Now a little before the middle, now a little behind it.
    moments = [9.5 + second + (0.02 if second % 2 else -0.02) for second in range(10)]
    between = {"rows": [{"time": moment, "rate_in": 1.0, "rate_out": 0} for moment in moments]}
    found = merging.history({0: steady, 1: between, 2: {"rows": []}})["rows"]
    assert [row["rate_in"] for row in found] == [2.0] * 10
