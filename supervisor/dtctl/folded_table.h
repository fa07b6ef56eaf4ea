/// A table for people. In a long one, rows that say the same become one row with ranges:
/// "n[002-998]  MEMBER".
#pragma once

#include <string>
#include <vector>

namespace dt::supervisor {

/// What becomes of a column's cells in a row that stands for many.
enum class Column {
  kSame,    ///< They are equal: rows that differ in one are not folded.
  kIds,     ///< Numbers: "0-15,17".
  kHosts,   ///< Hosts, each once: "n[002-998]".
  kAmount,  ///< From the least to the most: "118-120 of 938".
  kOwn,     ///< Each has its own: "-".
};

struct Cell {
  std::string text;
  double amount = 0;  ///< The value of kAmount.
  /// Rows with cells of different kinds are not folded. Of kSame: what many rows say in place of
  /// their texts; empty: the text.
  std::string kind = {};
};

class FoldedTable {
 public:
  /// A table of at most so many rows stays as it is: a screen has room for it.
  static constexpr std::size_t kWholeRows = 16;

  struct Head {
    const char* title;
    Column column;
  };
  /// `is_whole`: rows are never folded.
  FoldedTable(std::vector<Head> heads, bool is_whole)
      : heads_(std::move(heads)), is_whole_(is_whole) {}

  /// As many cells as there are heads.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] bool empty() const { return rows_.empty(); }

  /// The head and the rows, columns as wide as their widest cell; folded rows stand where their
  /// first one was.
  [[nodiscard]] std::string text() const;

 private:
  using Row = std::vector<Cell>;
  [[nodiscard]] std::vector<Row> folded() const;
  [[nodiscard]] Row fold(const std::vector<const Row*>& rows) const;

  std::vector<Head> heads_;
  bool is_whole_;
  std::vector<Row> rows_;
};

/// "n[002-998]", or "997 hosts" where that would be long. Words that are no hosts stay words.
[[nodiscard]] std::string fold_host_names(const std::vector<std::string>& names);
/// "118 of 938" and "120 of 938": "118-120 of 938"; "59 s" and "1 min 04 s": "59 s - 1 min 04 s".
[[nodiscard]] std::string from_to(const std::string& least, const std::string& most);

}  // namespace dt::supervisor
