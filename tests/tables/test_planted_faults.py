"""Each fault, planted in a copy of the driver, makes a test of this folder fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAINING, RANKS = "../torch/test_tables_on_disk", "../torch/test_ranks_on_disk"
FAULTS = {  # name: file, what is replaced, by what, file of tests and words in their names
    "no check at collect": (
        "kernels/tables/fetch.cpp", "entry == ticket->entry[k] && ticket->have[k]",
        "ticket->have[k]", "against_model", "random"),
    "open block read at plan": (
        "kernels/tables/fetch.cpp", "meta_[order % places_].state != OPEN", "true",
        "against_model", "random"),
    "block overwritten in memory is read": (
        "kernels/tables/store.hpp", "order + places_ > head_", "order + places_ + 4 > head_",
        "against_model", "random"),
    "epoch not raised": ("kernels/tables/writer.cpp", "    ++epoch;\n", "", "blocks", "epoch"),
    "moved rows get the new epoch": (
        "kernels/tables/cleaner.cpp", "std::max(header.epoch, history_)", "epoch", "blocks",
        "epoch"),
    "history_from is not raised": (
        "tables/commits.py", '"history_from": history_from,', "", "reader", "changed"),
    "dropped commits are not listed": (
        "tables/commits.py", 'before["gaps"] + dropped', 'before["gaps"]', "reader", "changed"),
    "cleaner does not look whether a copy is the newest": (
        "kernels/tables/cleaner.cpp", "if (index.get(rows[at]) != entry) continue;", "",
        "against_model", "random"),
    "cleaner looks before it waits": (
        "kernels/tables/cleaner.cpp", """                wait_for_room(hold);
                if (source.kept || !full_.empty()) {  // by a commit, or an append, meanwhile
                    cleaning_ = nullptr;
                    return;
                }
                if (index.get(rows[at]) != entry) continue;
""", """                if (index.get(rows[at]) != entry) continue;
                wait_for_room(hold);
""", "log", "while_those"),
    "places of more bits lack that of the first row": (
        "kernels/tables/index.hpp", "at = 0; at < rows; ++at)", "at = 1; at < rows; ++at)",
        "against_model", "random"),
    "state of a moved row is another one's": (
        "kernels/tables/cleaner.cpp", "block + layout.state(at))", "block + layout.state(0))",
        "against_model", "random"),
    "a row enters a block before that of its newest copy": (
        "kernels/tables/log.cpp",
        "at < open.size() && before && order_of(before) > open[at].order", "false",
        "against_model", "random"),
    "old manifests go before the new one is durable": (
        "tables/manifest.py", """len(text)}\\n".encode())
    sync_folder(folder)""", """len(text)}\\n".encode())""", "crashes", "prefix"),
    "dense part after the manifest": (
        "tables/commits.py", """        if dense is not None:
            replace(self._dense(number), dense)
        kept = {""", """        kept = {""", "crashes", "prefix"),
    "names of new segments are not forced": (
        "tables/commits.py", """        sync_folder(self.folder)
        write_manifest(self.folder, manifest)
        self.greatest""", """        write_manifest(self.folder, manifest)
        self.greatest""", "crashes", "prefix"),
    "only the last segment is forced": (
        "kernels/tables/writer.cpp", "for (Segment *segment : held) segment->file.sync();",
        "if (!held.empty()) held.back()->file.sync();", "crashes", "prefix"),
    "a commit does not wait for the writer": (
        "kernels/tables/writer.cpp", "return low_ >= end || !failed_.empty();", "return true;",
        "crashes", "prefix"),
    "a kept commit's segment is removed": (
        "kernels/tables/writer.cpp", "writes && !segment.kept && !before", "writes && !before",
        "commits", "kept"),
    "a segment of the last commit is removed": (
        "kernels/tables/writer.cpp", "!segment.dead || segment.named ||", "!segment.dead ||",
        "crashes", "prefix"),
    "a number is used again while reads are out": (
        "kernels/tables/writer.cpp", "(!reading_.empty() && *reading_.begin() <= segment.reads)",
        "false", "blocks", "file_stays"),
    "a block in another's place": (
        "kernels/tables/format.hpp", "header.nonce != identity.nonce || header.segment != "
        "identity.segment ||\n        header.block != number", "false", "blocks", "another"),
    "blocks after those of the commit": (
        "kernels/tables/recovery.cpp", "    segment.expected = live;\n",
        """    segment.expected = live;
    if (segment.file.size() > PAGE + uint64_t{bound} * block_bytes) until = bound;
""", "crashes", "prefix"),
    "an opening appends to the last segment of the one before": (
        "kernels/tables/recovery.cpp", "    if (reads_) return;\n", """    if (reads_) return;
    if (writes && !segments.empty() && segments.rbegin()->second->blocks < bound) {
        Segment &last = *segments.rbegin()->second;
        last.first = head_, last.written = last.blocks, nonce = last.nonce, current_ = &last;
        for (uint32_t block = 0; block < last.blocks; ++block, ++head_) {
            last.file.read(buffer(head_), block_bytes, PAGE + uint64_t{block} * block_bytes);
            meta_[head_ % places_] = {&last, block, WRITTEN};
            add_to_summary(last.summary, buffer(head_));
        }
        low_ = head_;
    }
""", "commits", "later_commit"),
    "blocks of a later summary": (
        "kernels/tables/recovery.cpp", "listed.epoch, rows.data(), listed.count);\n",
        """listed.epoch, rows.data(), listed.count);
        if (block + 1 == until && !std::count(place.begin(), place.end(), nullptr)) until = bound;
""", "crashes", "prefix"),
    "a damaged summary is used": (
        "kernels/tables/recovery.cpp", "footer.summary_crc != summary_crc", "0 != 0 * summary_crc",
        "log", "summary"),
    "one row more in a block": (
        "kernels/tables/format.hpp", "(block_bytes - BLOCK_HEADER) / (record + 4)",
        "(block_bytes - BLOCK_HEADER) / (record + 4) + 1", "against_model", "random"),
    "row numbers of 31 bits": (
        "kernels/tables/format.hpp", "numbers[at] == row ?", "!((numbers[at] ^ row) << 1) ?",
        "log", "numbers"),
    "the last page of a file is refused": (
        "kernels/tables/fetch.cpp", "table.base.used()) > got)", "table.base.used()) > got || "
        "got < bytes)", "bases", "published"),
    "halves are rounded up": (
        "kernels/tables/base.cpp", "0x7fff + ((bits >> 16) & 1)", "0x8000", "bases", "published"),
    "a full disk is not seen": (
        "kernels/tables/files.hpp", """        if (error)
            fail(path, "could not be written""", """        if (error && error != ENOSPC)
            fail(path, "could not be written""", "crashes", "failed"),
    "a failed sync is tried again": (
        "kernels/tables/files.hpp", "int error = before(SYNC, path);",
        "int error = before(SYNC, path) ? before(SYNC, path) && false : 0;", "crashes", "failed"),
    "a forked process trains": (
        "tables/native_store.py", "if os.getpid() != self.owner:", "if False:", "against_model",
        "second"),
    # Those of training, whose stages overlap.
    "victims are fetched before they are written": (
        "torch/store/batch_stages.py", """        if earlier >= inserted:
            return False
""", "", TRAINING, "as_early"),
    "bypassed rows are fetched before they are written": (
        "torch/store/batch_stages.py", "flight.wait_for < window.finished or", "True or", TRAINING,
        "as_early"),
    "a read of plan is used after its row was appended": (
        "kernels/tables/fetch.cpp", "entry == ticket->entry[k] && ticket->have[k]",
        "(ticket->have[k])", TRAINING, "bits"),
    "trained rows are not marked": (
        "torch/store/row_updates.py", "distinct, storage.dirty)", "distinct)", TRAINING, "bits"),
    "marks stay after a commit": (
        "torch/store/write_back.py", "            storage.dirty[slots] = False\n", "", TRAINING,
        "not_trained"),
    "marks go before the rows are written": (
        "torch/store/write_back.py", """            write(group, flat, self.read(storage, slots))
            storage.dirty[slots] = False
""", """            storage.dirty[slots] = False
            write(group, flat, self.read(storage, slots))
""", "../torch/test_rows_after_errors", "reach"),
    "a commit leaves out victims on their way": (
        "torch/store/write_back.py",
        "                self.write_slots(group, flat, slots, write)\n",
        """                away = [each.victim_slots for flight in self._window.batches.values()
                        for each in flight.transfers if each.segment.group == group
                        and each.written_back is not None]
                stay = ~torch.isin(slots, torch.cat([slots[:0], *away]).long())
                storage.dirty[slots] = False
                self.write_slots(group, flat[stay], slots[stay], write)
""", TRAINING, "on_their_way"),
    "victims that were not trained are written": (
        "torch/store/batch_stages.py",
        "].dirty[transfer.victim_slots.long()]", "].dirty[transfer.victim_slots.long()] | True",
        TRAINING, "not_trained"),
    "slots change before their victims are written": (
        "torch/store/batch_stages.py",
        "            # Before the slots change, and without the lock, because this may wait.\n",
        """            early = transfer.fill_places < storage.slots
            storage.assign(transfer.fills.flat[early], transfer.fill_places[early])
""", TRAINING, "bits"),
    "a commit is cut before the rows in slots are written": (
        "torch/collection/commits.py", """        self._lifecycle.flush()
        return self.disk.commit(parts, keep)
""", """        number = self.disk.commit(parts, keep)
        self._lifecycle.flush()
        return number
""", TRAINING, "sigkill or commits"),
    "slots keep the rows of a later commit": (
        "torch/collection/commits.py", """                self._lifecycle.reset()
                self._return(number)""", "                self._return(number)", TRAINING,
        "commits"),
    "a rank does not hold the commit of all": (
        "torch/sharded/commits.py", "self.disk.commit(parts, keep, step, self._agreed)",
        "self.disk.commit(parts, keep, step)", RANKS, "several"),
    "a rank lets the commit of all go before the others have the next": (
        "torch/sharded/commits.py", "self.disk.commit(parts, keep, step, self._agreed)",
        "self._agreed = self.disk.commit(parts, keep, step, self._agreed)", RANKS, "several"),
    "a commit lacks the rows of ids": (
        "torch/collection/commits.py", '"ids": self._ids()}, keep)', '"ids": None}, keep)',
        TRAINING, "any_ids"),
}


def file_of(name):
    return ROOT / "tests" / "tables" / (f"{name}.py" if "/" in name else f"test_{name}.py")


def test_each_fault_has_its_place():
    for fault, (name, old, new, tests, _) in FAULTS.items():
        source = (ROOT / "sw_driver" / "hotrow" / name).read_text()
        assert source.count(old) == 1 and old != new, fault
        assert file_of(tests).exists(), fault


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(tmp_path, fault):
    name, old, new, tests, words = FAULTS[fault]
    shutil.copytree(ROOT / "sw_driver", tmp_path / "sw_driver",
                    ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "sw_driver" / "hotrow" / name
    path.write_text(path.read_text().replace(old, new))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m",
         "not long and not nightly", "--timeout", "300", file_of(tests), "-k",
         words], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "sw_driver")})
    assert done.returncode in (1, -6, -11), done.stdout[-3000:] + done.stderr[-2000:]
    assert "Timeout (>" not in done.stdout + done.stderr, done.stdout[-3000:] + done.stderr[-2000:]
    assert "compiled once" not in done.stdout and "could not build" not in done.stdout, done.stdout
