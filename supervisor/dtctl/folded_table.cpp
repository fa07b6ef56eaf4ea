#include "supervisor/dtctl/folded_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/number.h"
#include "core/files/host_names.h"
#include "core/files/hosts.h"
#include "core/files/ranges.h"

namespace dt::supervisor {
namespace {

constexpr std::size_t kLongestList = 60;  ///< Characters; a longer list becomes its length.

std::string list_or_count(std::string list, std::size_t count, std::string_view what) {
  return list.size() <= kLongestList ? list : fmt::format("{} {}", count, what);
}

std::string fold_ids(const std::vector<const Cell*>& cells) {
  std::vector<std::uint64_t> ids;
  for (const Cell* cell : cells)
    if (const auto id = parse_number<std::uint64_t>(cell->text)) ids.push_back(*id);
  const std::size_t count = ids.size();
  return count == 0 ? "-" : list_or_count(fold_numbers(std::move(ids)), count, "ids");
}

const std::string& common_text(const Cell& cell) {
  return cell.kind.empty() ? cell.text : cell.kind;
}

/// What the cells of a column become in one row.
std::string fold_cells(Column column, std::vector<const Cell*> cells) {
  switch (column) {
    case Column::kSame:
      return common_text(*cells.front());
    case Column::kIds:
      return fold_ids(cells);
    case Column::kHosts: {
      std::vector<std::string> names;
      for (const Cell* cell : cells) names.push_back(cell->text);
      return fold_host_names(names);
    }
    case Column::kAmount: {
      std::erase_if(cells, [](const Cell* cell) { return cell->text == "-"; });
      const auto [least, most] = std::ranges::minmax_element(cells, {}, &Cell::amount);
      return cells.empty() ? "-" : from_to((*least)->text, (*most)->text);
    }
    case Column::kOwn:
      break;
  }
  return "-";
}

/// The words of `text`, as parts of it.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) words.push_back(host_names::take_until(text, ' '));
  return words;
}

}  // namespace

std::string from_to(const std::string& least, const std::string& most) {
  if (least == most) return least;
  const auto a = words_of(least);
  const auto b = words_of(most);
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  // One word differs, and the others stand around it.
  if (a.size() == b.size() && x != a.end() && std::equal(x + 1, a.end(), y + 1, b.end())) {
    const auto end = static_cast<std::size_t>(x->data() + x->size() - least.data());
    return std::string(least).insert(end, fmt::format("-{}", *y));
  }
  return least + " - " + most;
}

std::string fold_host_names(const std::vector<std::string>& names) {
  std::set<Host> hosts;
  std::set<std::string> others;
  for (const std::string& name : names) {
    const auto parsed = parse_hosts(name, "host");
    if (parsed && parsed->size() == 1)
      hosts.insert(parsed->front().host);
    else
      others.insert(name);
  }
  const std::size_t count = hosts.size() + others.size();
  std::vector<std::string> words(others.begin(), others.end());
  std::ranges::move(fold_hosts({hosts.begin(), hosts.end()}), std::back_inserter(words));
  return list_or_count(fmt::format("{}", fmt::join(words, ",")), count, "hosts");
}

FoldedTable::Row FoldedTable::fold(const std::vector<const Row*>& rows) const {
  if (rows.size() == 1) return *rows.front();
  Row out;
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    std::vector<const Cell*> cells;
    for (const Row* row : rows) cells.push_back(&(*row)[i]);
    out.push_back({fold_cells(heads_[i].column, std::move(cells))});
  }
  return out;
}

std::vector<FoldedTable::Row> FoldedTable::folded() const {
  std::map<std::vector<std::string>, std::size_t> group_of;
  std::vector<std::vector<const Row*>> groups;
  for (const Row& row : rows_) {
    std::vector<std::string> key;
    for (std::size_t i = 0; i < heads_.size(); ++i)
      key.push_back(heads_[i].column == Column::kSame ? common_text(row[i]) : row[i].kind);
    const auto [group, is_new] = group_of.try_emplace(std::move(key), groups.size());
    if (is_new) groups.emplace_back();
    groups[group->second].push_back(&row);
  }
  std::vector<Row> out;
  for (const auto& group : groups) out.push_back(fold(group));
  return out;
}

std::string FoldedTable::text() const {
  Row titles;
  for (const Head& head : heads_) titles.push_back({head.title});
  std::vector<Row> rows = is_whole_ || rows_.size() <= kWholeRows ? rows_ : folded();
  rows.insert(rows.begin(), std::move(titles));
  std::vector<std::size_t> widths(heads_.size());
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].text.size());
  std::string out;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      out += i + 1 == row.size() ? row[i].text : fmt::format("{:<{}}  ", row[i].text, widths[i]);
    while (out.ends_with(' ')) out.pop_back();
    out += "\n";
  }
  return out;
}

}  // namespace dt::supervisor
