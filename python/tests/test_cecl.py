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
    def test_tells_what_an_all_gather_in_place_sends(self):
        told = cecl.explain("all_gather", count=1024, type="float32", ranks=4, in_place=True)
        self.assertEqual(told["bytes_sent"], 3 * 4096)
        self.assertTrue(told["zero_sm"])

    def test_tells_what_an_alltoall_sends(self):
        told = cecl.explain("alltoall", count=1024, type="int8", ranks=2)
        self.assertGreaterEqual(told["bytes_sent"], 1024)
        self.assertTrue(told["path"])

    def test_tells_which_collectives_reduce(self):
        for op, function in (("all_gather", False), ("broadcast", False), ("gather", False), ("scatter", False),
                             ("reduce_scatter", True), ("all_reduce", True), ("reduce", True)):
            told = cecl.explain(op, count=1 << 20, type="bfloat16", ranks=2)
            self.assertEqual(told["reductions"] > 0, function, f"{op}: {told}")
            self.assertTrue(told["path"] and told["reason"], f"{op}: {told}")

    def test_tells_why_a_reduction_takes_sms(self):
        told = cecl.explain("all_reduce", count=1 << 20, type="float32", ranks=4, in_place=True, reduction="avg")
        self.assertFalse(told["zero_sm"])
        self.assertIn("arithmetic needs SMs", told["reason"])

    def test_refuses_what_it_does_not_know(self):
        with self.assertRaisesRegex(ValueError, "op 'all_gathers': one of all_gather, "):
            cecl.explain("all_gathers")
        with self.assertRaisesRegex(ValueError, "type 'int4': one of int8, "):
            cecl.explain(type="int4")
        with self.assertRaisesRegex(ValueError, "reduction 'mean': one of sum, "):
            cecl.explain("reduce", reduction="mean")

    def test_gives_the_librarys_words_and_goes_on(self):
        with self.assertRaisesRegex(RuntimeError, "ceclCommInitAll: "):
            cecl.explain(ranks=0)
        os.environ["CECL_SM_POLICY"] = "never"
        try:
            with self.assertRaisesRegex(RuntimeError, "ceclGroupExplain: .*CECL_SM_NEVER"):
                cecl.explain("all_reduce")
        finally:
            del os.environ["CECL_SM_POLICY"]
        self.assertTrue(cecl.explain("all_reduce")["path"])


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
