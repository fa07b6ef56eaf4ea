#include "launcher/agent/last_exception.h"

#include "test/support/catch.h"

using dt::launcher::last_exception;

TEST_CASE("last exception: the line below the last frames", "[last_exception]") {
  // Each as Python 3.11 prints it.
  const std::string first =
      "Traceback (most recent call last):\n"
      "  File \"t.py\", line 2, in <module>\n"
      "    f()\n"
      "    ^^^\n"
      "ZeroDivisionError: division by zero\n";
  CHECK(last_exception("epoch 1\n" + first) == "ZeroDivisionError: division by zero");
  const std::string second =
      "Traceback (most recent call last):\n"
      "  File \"t.py\", line 4, in <module>\n"
      "    raise ValueError(\"no such batch\")\n"
      "ValueError: no such batch";
  for (const char* link :
       {"\nDuring handling of the above exception, another exception occurred:\n\n",
        "\nThe above exception was the direct cause of the following exception:\n\n"})
    CHECK(last_exception(first + link + second) == "ValueError: no such batch");
  CHECK(last_exception(
            "  File \"t.py\", line 1\n    f(\n     ^\nSyntaxError: '(' was never closed\n") ==
        "SyntaxError: '(' was never closed");
  CHECK(last_exception("Traceback (most recent call last):\nKeyboardInterrupt\n") ==
        "KeyboardInterrupt");
}

TEST_CASE("last exception: what comes after its first line does not hide it", "[last_exception]") {
  const std::string cuda =
      "Traceback (most recent call last):\n  File \"t.py\", line 2, in <module>\n    f()\n"
      "RuntimeError: CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`\n";
  CHECK(last_exception(cuda + "[W Process.cpp:1] not destroyed\n") ==
        "RuntimeError: CUDA error: out of memory");
  CHECK(last_exception(cuda + "Exception ignored in: <function X.__del__ at 0x7f>\n"
                              "Traceback (most recent call last):\n  File \"t.py\", line 9\n"
                              "AttributeError: no file\n") ==
        "RuntimeError: CUDA error: out of memory");
  // A loader's: the worker's own exception stands in the message of the one that is raised.
  CHECK(last_exception("Traceback (most recent call last):\n  File \"t.py\", line 2\n    next(it)\n"
                       "ValueError: Caught ValueError in DataLoader worker process 0.\n"
                       "Original Traceback (most recent call last):\n  File \"d.py\", line 5\n"
                       "    raise ValueError(i)\nValueError: 17\n") == "ValueError: 17");
}

TEST_CASE("last exception: groups, and ranks before each line", "[last_exception]") {
  const std::string group =
      "  + Exception Group Traceback (most recent call last):\n"
      "  |   File \"g.py\", line 1, in <module>\n"
      "  |     raise ExceptionGroup(\"eg\", [ValueError(1)])\n"
      "  | ExceptionGroup: eg (1 sub-exception)\n"
      "  +-+---------------- 1 ----------------\n";
  CHECK(
      last_exception(group + "    | ValueError: 1\n    +------------------------------------\n") ==
      "ExceptionGroup: eg (1 sub-exception)");
  CHECK(last_exception(group + "    | Traceback (most recent call last):\n"
                               "    |   File \"g.py\", line 3, in <module>\n"
                               "    |     raise ValueError(1)\n    | ValueError: 1\n") ==
        "ValueError: 1");
  CHECK(last_exception("[rank3]: Traceback (most recent call last):\n"
                       "[rank3]:   File \"t.py\", line 2, in <module>\n[rank3]:     f()\n"
                       "[rank3]: ValueError: x\n") == "ValueError: x");
}

TEST_CASE("last exception: none, and any bytes", "[last_exception]") {
  for (const char* text : {"", "\n", "ValueError: not one\n", "Traceback (most recent call last):",
                           "  File \"t.py\", line 1\n    f()\n", "  | \n", "[rank", "  File \""})
    CHECK(last_exception(text).empty());
  std::string any = "  File \"\n\xff\xfe\x01: ";
  CHECK(last_exception(any) == "\xff\xfe\\x01: ");
  for (int i = 0; i < 200; ++i) any += "\u00fc";
  const std::string cut = last_exception(any);
  CHECK(cut.size() <= 200);
  CHECK(cut.substr(cut.size() - 2) == "\u00fc");
}
