"""The installed package, on the host device: python -m unittest discover python/tests"""
import os
import subprocess
import sys
import tempfile
import unittest

os.environ["CECL_DEVICE"] = "host"

import cecl


class Run(unittest.TestCase):
    def test_gives_the_commands_status(self):
        self.assertEqual(cecl.run([sys.executable, "-c", "raise SystemExit(7)"],
                                  stderr=subprocess.DEVNULL), 7)

    def test_preloads_the_library_with_the_policy(self):
        line = "import os; print(os.environ['LD_PRELOAD'], os.environ['CECL_NCCL'])"
        with tempfile.TemporaryFile("w+") as out:
            self.assertEqual(cecl.run([sys.executable, "-c", line], policy="all", stdout=out,
                                      stderr=subprocess.DEVNULL), 0)
            out.seek(0)
            library, policy = out.read().split()
        self.assertTrue(library.endswith("lib/cecl/libnccl.so.2"))
        self.assertTrue(os.path.isfile(library))
        self.assertEqual(policy, "all")

    def test_refuses_a_bad_policy(self):
        self.assertEqual(cecl.run(["true"], policy="some", stderr=subprocess.DEVNULL), 2)


class Stats(unittest.TestCase):
    def test_reads_a_line_of_each_process(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"pid": 1}\n{"pid": 2}\n')
            file.flush()
            self.assertEqual([process["pid"] for process in cecl.stats(file.name)], [1, 2])

    def test_without_a_file_says_so(self):
        os.environ.pop("CECL_NCCL_STATS_FILE", None)
        with self.assertRaisesRegex(ValueError, "no file"):
            cecl.stats()


class Explain(unittest.TestCase):
    def test_tells_what_an_all_gather_sends(self):
        told = cecl.explain("all_gather", count=1024, type="float32", ranks=4)
        self.assertEqual(told["bytes_sent"], 3 * 4096)
        self.assertTrue(told["zero_sm"])

    def test_tells_what_an_alltoall_sends(self):
        told = cecl.explain("alltoall", count=1024, type="int8", ranks=2)
        self.assertGreaterEqual(told["bytes_sent"], 1024)
        self.assertTrue(told["path"])

    def test_refuses_another_op(self):
        with self.assertRaisesRegex(ValueError, "all_gather, alltoall"):
            cecl.explain("gather")

    def test_gives_the_librarys_words(self):
        with self.assertRaisesRegex(RuntimeError, "ceclCommInitAll: "):
            cecl.explain(ranks=0)


class Places(unittest.TestCase):
    def place(self, option):
        return subprocess.run([sys.executable, "-m", "cecl", option], check=True, capture_output=True,
                              text=True).stdout.strip()

    def test_are_there(self):
        self.assertTrue(os.path.isfile(self.place("--include") + "/cecl/cecl.h"))
        self.assertTrue(os.path.isfile(self.place("--pkg-config") + "/cecl.pc"))
        self.assertTrue(os.path.isfile(self.place("--cmake-prefix") +
                                       "/lib/cmake/cecl/cecl-config.cmake"))
        self.assertTrue(os.path.isfile(self.place("--library") + "/libcecl.so"))


if __name__ == "__main__":
    unittest.main()
