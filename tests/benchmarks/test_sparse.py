"""The benchmark of sparse words: a smoke run, and its page from records."""

import json

from benchmarks import sparse


def test_a_smoke_run_measures_and_keeps_nothing(capsys, tmp_path):
    some = ["--methods", "TruncatedSVD,RCA", "--record", str(tmp_path / "record.json")]
    assert sparse.main([*some, "--smoke"]) == 0
    assert not list(tmp_path.iterdir())
    page = capsys.readouterr().out
    assert "| RCA | 0.0 | 100.0 |" in page
    assert "120 posts of 20 newsgroups to learn from, 80 to test" in page


def test_a_child_measures_one_method(capsys):
    assert sparse.main(["--child", "LMNN", "--smoke"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["shape"] == [120, 80, 1000]
    assert (run["status"], run["error"]) == ("converged", 0.0)
    assert run["megabytes"] >= run["megabytes_before"] > 0


def test_the_page_is_that_of_the_record(tmp_path):
    page = tmp_path / "page.md"
    assert sparse.main(["--table", "--page", str(page)]) == 0
    assert page.read_text() == sparse.PAGE.read_text()
