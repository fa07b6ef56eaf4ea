#include "io/flags.h"

#include <rapidcheck.h>

#include "test/support/catch.h"

using namespace dt;
using io::Words;

namespace {

enum class Colour { kRed, kGreen };

struct Fields {
  bool quiet = false;
  bool elastic = false;
  std::uint16_t port = 22;
  std::uint32_t workers = 2;
  std::optional<std::uint32_t> servers;
  Duration timeout = std::chrono::seconds(600);
  Duration long_one = std::chrono::hours(1);
  std::uint64_t limit = std::uint64_t{1} << 20;
  std::string file;
  Words names;
  std::string way = "auto";
  Colour colour = Colour::kGreen;
  int own = 0;
};

Result<void> no_spaces(const std::string& text) {
  if (text.find(' ') == text.npos) return {};
  return fail(ErrorKind::kInvalid, "no space was expected");
}

io::Flags flags_of(Fields& f) {
  const auto own = [&f](const std::string& text) -> Result<void> {
    if (text != "seven") return fail(ErrorKind::kInvalid, "seven was expected");
    f.own = 7;
    return {};
  };
  return {{"First (with a remark)",
           {{.name = "workers",
             .letter = 'w',
             .value = "N",
             .to = &f.workers,
             .least = 1,
             .most = 64,
             .help = "so many ({})",
             .manual = "So many ({}), see --quiet and `x-y`."},
            {.name = "servers", .value = "N", .to = &f.servers, .help = "or none"},
            {.name = "port", .value = "PORT", .to = &f.port, .help = "a port"},
            {.name = "file",
             .letter = 'f',
             .value = "FILE",
             .to = &f.file,
             .check = no_spaces,
             .help = "a file"},
            {.name = "name", .value = "NAME[=VALUE]", .to = &f.names, .help = "may be repeated"}}},
          {"Second",
           {{.name = "elastic", .value = "[True|False]", .to = &f.elastic, .help = "e"},
            {.name = "timeout", .value = "TIME", .to = &f.timeout, .help = "so long ({})"},
            {.name = "long", .value = "TIME", .to = &f.long_one, .most = 7200, .help = "({})"},
            {.name = "limit", .value = "SIZE", .to = io::Bytes{&f.limit}, .help = "bytes"},
            {.name = "way",
             .value = "auto|tcp",
             .to = io::one_of(f.way, {"auto", "tcp"}),
             .help = "({})"},
            {.name = "colour",
             .value = "red|green",
             .to = io::one_of<Colour>(f.colour, {{"red", Colour::kRed}, {"green", Colour::kGreen}}),
             .help = "({})"},
            {.name = "own", .value = "WORD", .to = io::Reader{own}, .help = "own"},
            {.name = "secret", .value = "N", .to = &f.workers},
            {.name = "no-prefix", .help = "p"},
            {.name = "quiet", .letter = 'q', .to = &f.quiet, .help = "q"},
            {.name = "version", .help = "v"},
            {.name = "help", .letter = 'h', .help = "h"}}}};
}

const io::Program& program(io::Free free) {
  static io::Program one{
      .name = "prog", .version = "prog 1\n", .usage = "Usage\n", .more = "\nEnd\n"};
  one.free = free;
  return one;
}

struct Parsed {
  Fields fields;
  io::Given given;
};
Parsed good(const Words& words, io::Free free = io::Free::kNone) {
  Parsed parsed;
  auto given = io::parse(program(free), flags_of(parsed.fields), words);
  INFO((given ? "" : given.error().message));
  REQUIRE(given);
  parsed.given = std::move(*given);
  return parsed;
}

std::string error_of(const Words& words, io::Free free = io::Free::kNone) {
  Fields fields;
  const auto given = io::parse(program(free), flags_of(fields), words);
  return given ? "no error" : given.error().message;
}

}  // namespace

TEST_CASE("flags: each kind of value reaches its field", "[flags]") {
  const Fields f = good({"-w3",   "--servers=0", "--port",   "9",           "-qf",
                         "a",     "--name",      "A",        "--name=B=",   "--elastic",
                         "False", "--timeout",   "1.5m",     "--long=30ms", "--limit",
                         "3k",    "--way=tcp",   "--colour", "red",         "--own=seven"})
                       .fields;
  CHECK(f.workers == 3);
  CHECK(f.servers == 0U);
  CHECK(f.port == 9);
  CHECK(f.quiet);
  CHECK(f.file == "a");
  CHECK(f.names == Words{"A", "B="});
  CHECK_FALSE(f.elastic);
  CHECK(f.timeout == std::chrono::seconds(90));
  CHECK(f.long_one == std::chrono::milliseconds(30));
  CHECK(f.limit == 3072);
  CHECK(f.way == "tcp");
  CHECK(f.colour == Colour::kRed);
  CHECK(f.own == 7);
  CHECK(good({"--no-prefix"}).given.has("no-prefix"));
  CHECK_FALSE(good({"-q"}).given.has("no-prefix"));
  CHECK(good({"--elastic", "-q"}).fields.elastic);
}

TEST_CASE("flags: zero is a time only where the flag allows it", "[flags]") {
  Duration time = std::chrono::seconds(1);
  const io::Flag flag{.name = "in", .value = "TIME", .to = &time, .may_be_zero = true};
  const auto text = GENERATE("0", "0s", "0ms", "0m", "0.0");
  CHECK(io::read(flag, text));
  CHECK(time == Duration{});
  for (const char* wrong : {"-1", "soon", "0d", "s", "1e-9"}) CHECK_FALSE(io::read(flag, wrong));
  CHECK_FALSE(io::read({.name = "in", .value = "TIME", .to = &time}, text));
}

TEST_CASE("flags: what does not fit names the option and what was expected", "[flags]") {
  struct Row {
    Words words;
    std::string expected;
  };
  const auto row = GENERATE(values<Row>({
      {{"--workers", "0"}, "--workers 0: a number 1 to 64 was expected"},
      {{"-w", "65"}, "--workers 65: a number 1 to 64 was expected"},
      {{"-w", "-1"}, "--workers -1: a number 1 to 64 was expected"},
      {{"--workers="}, "--workers is empty"},
      {{"--port", "65536"}, "--port 65536: a number 0 to 65535 was expected"},
      {{"--servers", "4294967296"}, "--servers 4294967296: a number 0 to 4294967295 was expected"},
      {{"--file", "a b"}, "--file a b: no space was expected"},
      {{"--file="}, "--file is empty"},
      {{"--elastic=no"}, "--elastic no: True or False was expected"},
      {{"--timeout", "0"}, "--timeout 0: a time was expected, such as 30, 500ms, 10m or 2h"},
      {{"--timeout", "5d"}, "--timeout 5d: a time was expected, such as 30, 500ms, 10m or 2h"},
      {{"--timeout", "1177h"}, "--timeout 1177h: at most 1176h (49 days) were expected"},
      {{"--long", "3h"}, "--long 3h: at most 7200 s were expected"},
      {{"--limit", "5GB"}, "--limit 5GB: a size was expected, such as 500M or 2G"},
      {{"--way", "udp"}, "--way udp: one of auto, tcp was expected"},
      {{"--colour", "blue"}, "--colour blue: one of red, green was expected"},
      {{"--own", "8"}, "--own 8: seven was expected"},
      {{"--file"}, "--file needs a value"},
      {{"-qf"}, "-f needs a value"},
      {{"--file", "-q"}, "--file needs a value"},
      {{"-f", "-q", "-w1"}, "--file needs a value"},
      {{"--elastic="}, "--elastic is empty"},
      {{"-w1", "--workers", "2"}, "--workers is given twice"},
      {{"--quiet=1"}, "--quiet takes no value: leave out \"=1\""},
      {{"--quiet="}, "--quiet takes no value: leave out \"=\""},
      {{"--worker", "1"}, "unknown option --worker; did you mean --workers? See prog --help"},
      {{"--secre"}, "unknown option --secre; see prog --help"},
      {{"--worker=1"}, "unknown option --worker; did you mean --workers? See prog --help"},
      {{"-qx"}, "unknown option -x in -qx; see prog --help"},
      {{"-xq"}, "unknown option -xq; see prog --help"},
      {{"-q-"}, "unknown option -- in -q-; see prog --help"},
      {{"word"}, "unknown word 'word'"},
      {{"--", "word"}, "unknown option --; see prog --help"},
      {{"--"}, "unknown option --; see prog --help"},
      {{"---"}, "unknown option ---; see prog --help"},
      {{"---w", "1"}, "unknown option ---w; see prog --help"},
      {{"--="}, "unknown option --; see prog --help"},
      {{"-"}, "unknown word '-'"},
      {{""}, "unknown word ''"},
      {{"word", "--worker"}, "unknown word 'word'"},
  }));
  CHECK(error_of(row.words) == row.expected);
}

TEST_CASE("flags: free words are where the program takes them", "[flags]") {
  CHECK(good({"-q", "run", "-q"}, io::Free::kCommand).given.words == Words{"run", "-q"});
  CHECK(good({"--", "-q"}, io::Free::kCommand).given.words == Words{"-q"});
  CHECK(good({"a", "-q", "b"}, io::Free::kAnywhere).given.words == Words{"a", "b"});
  CHECK(good({"-q", "--", "-x"}, io::Free::kAfterDashes).given.words == Words{"-x"});
  CHECK(good({"-q", "--"}, io::Free::kAfterDashes).given.words.empty());
  CHECK(error_of({"a"}, io::Free::kAfterDashes) == "unknown word 'a'");
  CHECK(good({"-", "", "--", "--", "-q"}, io::Free::kAnywhere).given.words ==
        Words{"-", "", "--", "-q"});
  CHECK(good({"-", "--", "-q"}, io::Free::kCommand).given.words == Words{"-", "--", "-q"});
  CHECK(good({"--", "--", "-q"}, io::Free::kCommand).given.words == Words{"--", "-q"});
}

TEST_CASE("flags: a value may look like an option's name, a command or an option", "[flags]") {
  const auto file = [](const Words& words) {
    const Parsed parsed = good(words, io::Free::kCommand);
    CHECK(parsed.given.words == Words{"quiet", "-q"});
    return parsed.fields.file;
  };
  for (const char* word : {"quiet", "file", "--quiet", "--quiet=1", "--nosuch", "--", "---", "-1"})
    CHECK(file({"--file", word, "quiet", "-q"}) == word);
  CHECK(file({"-f", "quiet", "quiet", "-q"}) == "quiet");
  CHECK(file({"--file=-q", "quiet", "-q"}) == "-q");
}

TEST_CASE("flags: True or False is a value where another word follows", "[flags]") {
  struct Row {
    Words words;
    bool is_elastic;
    Words command;
  };
  const auto row = GENERATE(values<Row>({
      {{"--elastic", "run"}, true, {"run"}},
      {{"--elastic", "run", "-q"}, true, {"run", "-q"}},
      {{"--elastic", "True", "run"}, true, {"run"}},
      {{"--elastic", "0", "run"}, false, {"run"}},
      {{"--elastic", "False"}, true, {"False"}},
      {{"--elastic", "--", "False"}, true, {"False"}},
      {{"--elastic"}, true, {}},
      {{"--elastic=0"}, false, {}},
  }));
  const Parsed parsed = good(row.words, io::Free::kCommand);
  CHECK(parsed.fields.elastic == row.is_elastic);
  CHECK(parsed.given.words == row.command);
}

TEST_CASE("flags: any words end in a result, and a command's stay as they are", "[flags]") {
  const auto any_words = rc::gen::container<Words>(rc::gen::oneOf(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("-=wfqx "))),
      rc::gen::elementOf(Words{"--workers", "--file=", "--name", "--elastic", "True", "--quiet=1",
                               "-qf", "--manual", "--help", "file", "--worker"})));
  CHECK(rc::check("any words", [&] {
    const Words words = *any_words;
    for (const auto free :
         {io::Free::kNone, io::Free::kCommand, io::Free::kAnywhere, io::Free::kAfterDashes}) {
      Fields fields;
      const auto given = io::parse(program(free), flags_of(fields), words);
      RC_ASSERT(given || !given.error().message.empty());
    }
    for (const Words& options : {Words{"-qw", "3", "--name=A", "run"}, Words{"-q", "--"}}) {
      Words line = options;
      line.insert(line.end(), words.begin(), words.end());
      Words command = words;
      if (options.back() == "run") command.insert(command.begin(), "run");
      Fields fields;
      const auto given = io::parse(program(io::Free::kCommand), flags_of(fields), line);
      RC_ASSERT(given.has_value());
      RC_ASSERT(given->words == command);
    }
  }));
}

TEST_CASE("flags: help, version and manual come before the values", "[flags]") {
  Fields fields;
  const io::Flags flags = flags_of(fields);
  const auto answer = [&](const Words& words) {
    return io::answer(program(io::Free::kNone), flags, good(words).given).value_or("nothing");
  };
  CHECK(answer({"-q"}) == "nothing");
  CHECK(answer({"-w0", "--version"}) == "prog 1\n");
  CHECK(answer({"-h"}) ==
        "Usage\n\n"
        "First (with a remark):\n"
        "  -w [ --workers ] N    so many (2)\n"
        "  --servers N           or none\n"
        "  --port PORT           a port\n"
        "  -f [ --file ] FILE    a file\n"
        "  --name NAME[=VALUE]   may be repeated\n"
        "\n"
        "Second:\n"
        "  --elastic [True|False] e\n"
        "  --timeout TIME         so long (600 s)\n"
        "  --long TIME            (1 h)\n"
        "  --limit SIZE           bytes\n"
        "  --way auto|tcp         (auto)\n"
        "  --colour red|green     (green)\n"
        "  --own WORD             own\n"
        "  --no-prefix            p\n"
        "  -q [ --quiet ]         q\n"
        "  --version              v\n"
        "  -h [ --help ]          h\n"
        "\nEnd\n");
  const std::string manual = answer({"--manual"});
  CHECK(
      manual.starts_with(".SS First\n"
                         ".TP\n\\fB\\-w\\fR, \\fB\\-\\-workers\\fR \\fIN\\fR\n"
                         "So many (2), see \\fB\\-\\-quiet\\fR and \\fBx\\-y\\fR.\n"));
  CHECK(manual.find("\\fB\\-\\-name\\fR \\fINAME\\fR[=\\fIVALUE\\fR]\n") != std::string::npos);
  CHECK(manual.find("secret") == std::string::npos);
}
