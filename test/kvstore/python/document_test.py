"""The Python of the documents runs alone, on a store of this process.

Run by ctest with PYTHONPATH and DTKV_LIBRARY; by hand the same way.
"""

import os
import re
import traceback
import unittest

import torch

import snippets


class Documents(unittest.TestCase):
    def alone(self, function):
        """Runs it in a child: a process has one store."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                function()
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_each_is_known(self):
        self.assertEqual(sorted(snippets.found()), sorted(snippets.SNIPPETS), "a snippet needs a row in SNIPPETS")

    def test_each_runs(self):
        for name in sorted(snippets.SNIPPETS.keys() - {"python.md-5"}):
            with self.subTest(name):
                self.alone(lambda: snippets.run(name, print=lambda *_: None))

    def test_five_lines(self):
        text = (snippets.TOP / "packaging/doc/python.md").read_text(encoding="utf-8")
        five_lines = re.search(r"```diff\n(.*?)```", text, flags=re.S)[1]
        self.assertEqual(len(re.findall(r"^\+", five_lines, flags=re.M)), 5)

    def test_evaluation(self):
        def job():
            accuracy = []
            snippets.run("python.md-5", print=accuracy.append)
            self.assertEqual(len(accuracy), 10 + 1)
            self.assertGreater(accuracy[-1], 0.9)

        self.alone(job)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
