#!/usr/bin/env python3
"""Flags what g++ 12 miscompiles: in one full expression with co_await, a braced temporary or a
lambda with captures. Both are destroyed twice. The cure: name it on the line above.

usage: coroutine_lint.py [--self-test | FILE...]     (no FILE: every C++ file of the project)
Prints file:line: reason; exit 1 if there is one.
"""
import os
import re
import sys

# Comments, raw strings, strings, characters: replaced by blanks, so that offsets stay true. A
# digit separator (1'000) is not a character.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|->|&&|\|\||[^\s\w]")

SPECIFIERS = {"const", "noexcept", "mutable", "override", "final", "constexpr", "try"}
SCOPES = {"namespace", "struct", "class", "union", "enum", "extern"}
CLOSING = {"(": ")", "[": "]", "{": "}"}


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def tokenise(text):
    """[(word, line)]; text constants become one "" token, so that `f("a"){` still reads right."""
    text = PREPROCESSOR.sub(blank, NOISE.sub(lambda m: '"' + blank(m)[1:] if m.group(0)[0] in '"R' else blank(m), text))
    tokens, line, last = [], 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", last, match.start())
        last = match.start()
        tokens.append((match.group(0), line))
    return tokens


class Finder:
    """Walks a file statement by statement. A lambda's body is a function of its own: its
    statements are looked at by themselves, and the statement around it goes on behind it."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.found = []

    def word(self, at):
        return self.tokens[at][0] if 0 <= at < len(self.tokens) else ""

    def close_of(self, at):
        """Index of the bracket that closes the one at `at`."""
        open_word, close_word, depth = self.word(at), CLOSING[self.word(at)], 0
        for i in range(at, len(self.tokens)):
            if self.word(i) == open_word:
                depth += 1
            elif self.word(i) == close_word:
                depth -= 1
                if depth == 0:
                    return i
        return len(self.tokens) - 1

    def is_lambda(self, at):
        """Whether the `[` at `at` begins a lambda: not an index, attribute or structured binding."""
        before = self.word(at - 1)
        if before in (")", "]", '"', "auto") or (before in ("&", "&&") and self.word(at - 2) == "auto"):
            return False
        if re.match(r"[A-Za-z_]\w*$", before) and before not in ("return", "co_return", "co_await", "co_yield", "else"):
            return False
        if self.word(at + 1) == "[" or before == "[":
            return False
        return self.word(self.close_of(at) + 1) in ("(", "{", "<", "mutable", "noexcept", "->")

    def block(self, at):
        """Reads statements from `at` to the closing brace or the end; returns its index."""
        while at < len(self.tokens) and self.word(at) != "}":
            at = self.statement(at)
        return at

    def statement(self, at):
        begin, suspends, hazards, depth = at, None, [], 0

        def close():
            if suspends is not None:
                for line, what in hazards:
                    self.found.append((line, what))

        while at < len(self.tokens):
            word, line = self.tokens[at]
            if word == "co_await":
                suspends = line
            elif word == "[" and self.is_lambda(at):
                if self.close_of(at) > at + 1:
                    hazards.append((line, "capturing lambda"))
                body = self.lambda_body(at)
                if body is not None:
                    at = self.block(body + 1)  # stays on the closing brace
            elif word in "([":
                depth += 1
            elif word in ")]":
                depth -= 1
            elif word == "{":
                if depth == 0 and self.opens_block(begin, at):
                    close()
                    return self.block(at + 1) + 1
                hazards.append((line, "braced temporary"))
                depth += 1
            elif word == "}":
                if depth == 0:
                    close()
                    return at
                depth -= 1
            elif word == ";":
                # Also inside for (...; ...; ...): each part is a separate full expression.
                close()
                suspends, hazards = None, []
                if depth == 0:
                    return at + 1
            at += 1
        close()
        return at

    def lambda_body(self, at):
        """Index of the `{` of the lambda whose `[` is at `at`."""
        at = self.close_of(at) + 1
        if self.word(at) == "<":
            depth = 0
            while at < len(self.tokens):
                depth += {"<": 1, ">": -1}.get(self.word(at), 0)
                at += 1
                if depth == 0:
                    break
        while at < len(self.tokens) and self.word(at) != "{":
            if self.word(at) == ";":
                return None
            at = self.close_of(at) + 1 if self.word(at) in CLOSING else at + 1
        return at

    def opens_block(self, begin, at):
        """Whether the `{` at `at`, outside all parentheses, opens a body rather than a list."""
        before = self.word(at - 1)
        if at == begin or before in ("else", "do", "try", ":") or before in SPECIFIERS or before == '"':
            return True
        if before == ")":
            return True
        if self.word(begin) in SCOPES or any(
                self.word(i) in SCOPES and self.word(i - 1) != "=" for i in range(begin, at)
                if self.word(begin) in ("template", "export", "typedef", "static", "inline", "constexpr")):
            return not any(self.word(i) == "=" for i in range(begin, at))
        # -> Type {
        for i in range(at - 1, begin, -1):
            if self.word(i) == "->":
                return self.word(i - 1) == ")" or self.word(i - 1) in SPECIFIERS
            if not re.match(r"[\w:<>,*&]+$", self.word(i)):
                return False
        return False


def lint(text):
    finder = Finder(tokenise(text))
    at = 0
    while at < len(finder.tokens):
        at = finder.block(at) + 1
    return sorted(set(finder.found))


BAD = [
    "co_await f(Request{1, host});",
    "co_await f({.host = h});",
    "auto r = Reply{x, co_await g()};",
    "Reply r{x, co_await g()};",
    "v.push_back(T{s, co_await g()});",
    "co_await f(std::make_unique<T>(T{s}));",
    "co_await [s]() -> awaitable<void> { co_return; }();",
    "co_await co_spawn(ex, [s]() -> awaitable<void> { co_return; }, tok);",
    "co_spawn(co_await this_coro::executor, [s]() -> awaitable<void> { co_return; }, tok);",
    "co_await async_initiate<A, B>([s](auto h) { h(); }, tok);",
    "co_await f({a, b});",
    "if (auto r = co_await f(T{x}); !r) { g(); }",
    "while (co_await f(std::string{x})) { }",
    "for (int i = 0; co_await f(T{i}); ++i) { }",
    "for (auto x : co_await f([&] { return 1; })) g(x);",
    "co_return co_await f(T{s});",
    "auto g = [s]() -> awaitable<void> { co_await f(T{s}); };",
    "if (x) co_await f(T{1}); else g();",
    "switch (x) { case 1: co_await f(T{1}); }",
]
GOOD = [
    "auto request = Request{1, host}; co_await f(std::move(request));",
    "co_return T{s};",
    "auto op = f(T{s}); co_await std::move(op);",
    "co_await f([](auto h) { h(); });",
    "co_spawn(ex, [s]() -> awaitable<void> { co_await g(); }, tok);",
    "auto f = [s]() -> awaitable<void> { co_await g(); }; co_await co_spawn(ex, std::move(f), tok);",
    "if (auto r = co_await f(); !r) { g(T{x}); }",
    "auto [ec, n] = co_await f(buffer(x[i], 3));",
    "for (auto& [k, v] : m) { co_await f(k); }",
    "while (true) { T t{1}; co_await f(t); }",
    "try { co_await f(); } catch (const E& e) { T t{e}; }",
    "struct S { int a{1}; awaitable<void> f() { co_await g(); } };",
    "switch (x) { case 1: { T t{1}; co_await f(t); } }",
    "if (x) { T t{1}; } else { co_await f(); }",
    '/* co_await f(T{1}); */ // co_await f(T{1});\n auto s = "co_await f(T{1})";',
    "auto big = 1'000'000; co_await f(a[1]); g(T{2});",
    "[[nodiscard]] awaitable<int> f() { co_return co_await g(); }",
]


def self_test():
    failures = 0
    for wanted, cases in ((True, BAD), (False, GOOD)):
        for case in cases:
            code = "namespace n {\nawaitable<void> outer(int s) noexcept {\n" + case + "\n}\n}  // namespace n\n"
            if bool(lint(code)) != wanted:
                failures += 1
                print(f"self-test: {'missed' if wanted else 'wrongly flagged'}: {case}")
    print(f"coroutine lint: self-test of {len(BAD) + len(GOOD)} patterns, {failures} failed")
    return bool(failures)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    names = sys.argv[1:]
    if not names:
        root = os.path.relpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
        for folder in ("core", "io", "launcher", "supervisor", "kvstore", "trainer", "test"):
            for where, folders, files in os.walk(os.path.join(root, folder)):
                folders.sort()
                names += [os.path.join(where, f) for f in sorted(files) if f.endswith((".h", ".hpp", ".cpp"))]
    bad = 0
    for name in names:
        with open(name, encoding="utf-8") as file:
            text = file.read()
        if "co_await" not in text:
            continue
        for line, what in lint(text):
            bad += 1
            print(f"{name}:{line}: {what} in one expression with co_await: name it on the line above")
    print(f"coroutine lint: {len(names)} files, {bad} against the rule")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
