// Environments of puzzles: mazes, sudoku of four by four, knights and knaves.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "environments/answer.h"
#include "environments/family.h"
#include "environments/trace.h"

namespace ingot::environments {
namespace {

struct Maze {
  int64_t size;
  std::string cells;  ///< S start, G goal, # wall, . free; row by row
  explicit Maze(const Json& data) : size(data.at("size")), cells(data.at("cells")) {}
  Maze(int64_t n, std::string c) : size(n), cells(std::move(c)) {}

  /// Where a step leads; the cell itself where it would leave the maze or hit a wall.
  int64_t after(int64_t at, char move) const {
    const int64_t row = at / size, column = at % size;
    const int64_t to = move == 'U' && row > 0             ? at - size
                       : move == 'D' && row + 1 < size    ? at + size
                       : move == 'L' && column > 0        ? at - 1
                       : move == 'R' && column + 1 < size ? at + 1
                                                          : at;
    return cells[static_cast<size_t>(to)] == '#' ? at : to;
  }
  int64_t find(char cell) const { return static_cast<int64_t>(cells.find(cell)); }
  /// A shortest way from S to G; "" where there is none.
  std::string way() const {
    std::vector<std::string> ways(cells.size());
    std::vector<bool> seen(cells.size());
    std::vector<int64_t> queue = {find('S')};
    seen[static_cast<size_t>(queue[0])] = true;
    for (size_t i = 0; i < queue.size(); ++i)
      for (const char move : {'R', 'D', 'L', 'U'}) {
        const auto to = static_cast<size_t>(after(queue[i], move));
        if (seen[to]) continue;
        seen[to] = true;
        ways[to] = ways[static_cast<size_t>(queue[i])] + move;
        queue.push_back(static_cast<int64_t>(to));
      }
    return ways[static_cast<size_t>(find('G'))];
  }
};

Draft make_maze(Dice& dice, int64_t difficulty) {
  const int64_t size = difficulty + 2, count = size * size;
  for (;;) {
    Maze maze(size, std::string(static_cast<size_t>(count), '.'));
    for (char& cell : maze.cells)
      if (dice.below(10) < 3) cell = '#';
    const int64_t start = dice.below(count), goal = dice.below(count);
    if (start == goal) continue;
    maze.cells[static_cast<size_t>(start)] = 'S', maze.cells[static_cast<size_t>(goal)] = 'G';
    const std::string way = maze.way();
    if (static_cast<int64_t>(way.size()) < size) continue;
    std::string prompt = "maze";
    for (int64_t row = 0; row < size; ++row)
      prompt +=
          "\n" + joined(maze.cells.substr(static_cast<size_t>(row * size), static_cast<size_t>(size)), " ");
    return {prompt, {{"size", size}, {"cells", maze.cells}, {"answer", joined(way, " ")}}};
  }
}

bool right_maze(const Json& data, const std::string& answer) {
  const Maze maze(data);
  int64_t at = maze.find('S');
  const std::vector<std::string> moves = words_of(answer);
  if (moves.empty() || moves.size() > maze.cells.size()) return false;
  for (const std::string& move : moves) {
    const int64_t to = move.size() == 1 ? maze.after(at, move[0]) : at;
    if (to == at) return false;
    at = to;
  }
  return at == maze.find('G');
}

Trace solve_maze(const Json& data, Dice& dice, TraceStyle style) {
  const Maze maze(data);
  Steps steps(dice, style);
  const auto place = [&](int64_t at) { return fmt::format("{} {}", at / maze.size + 1, at % maze.size + 1); };
  int64_t at = maze.find('S');
  const int64_t goal = maze.find('G');
  steps.line(fmt::format("S {} G {}", place(at), place(goal)));
  for (const std::string& move : words_of(data.at("answer").get<std::string>())) {
    if (steps.slips()) {
      const char wrong = "UDLR"[dice.below(4)];
      if (maze.after(at, wrong) == at) steps.line(fmt::format("{} wall no", wrong));
    }
    at = maze.after(at, move[0]);
    std::string line = fmt::format("{} {} {}", move, place(at), maze.cells[static_cast<size_t>(at)]);
    if (steps.checked()) line += fmt::format(" ? {} {}", place(goal), at == goal ? "yes" : "no");
    steps.line(line);
  }
  return {steps.text(), data.at("answer").get<std::string>()};
}

using Grid = std::array<int, 16>;  // 0: blank

/// Numbers that stand in the row, column or box of a cell, as bits.
int seen_from(const Grid& grid, int cell) {
  int seen = 0;
  for (int other = 0; other < 16; ++other) {
    const bool row = other / 4 == cell / 4, column = other % 4 == cell % 4;
    const bool box = other / 8 == cell / 8 && other % 4 / 2 == cell % 4 / 2;
    if (other != cell && (row || column || box)) seen |= 1 << grid[static_cast<size_t>(other)];
  }
  return seen & 0b11110;
}

/// The number that alone is free in a cell; 0: several are.
int only_number(const Grid& grid, int cell) {
  const int free = 0b11110 & ~seen_from(grid, cell);
  return free != 0 && (free & (free - 1)) == 0 ? __builtin_ctz(static_cast<unsigned>(free)) : 0;
}

/// Cells in an order in which each has one free number; as far as that leads.
std::vector<std::pair<int, int>> single_steps(Grid grid) {
  std::vector<std::pair<int, int>> steps;
  for (bool found = true; found;) {
    found = false;
    for (int cell = 0; cell < 16 && !found; ++cell)
      if (const int number = grid[static_cast<size_t>(cell)] == 0 ? only_number(grid, cell) : 0) {
        grid[static_cast<size_t>(cell)] = number, found = true;
        steps.emplace_back(cell, number);
      }
  }
  return steps;
}

std::string grid_text(const Grid& grid, const char* between) {
  std::string text;
  for (size_t i = 0; i < 16; ++i) {
    if (i > 0) text += i % 4 == 0 ? between : " ";
    text += grid[i] == 0 ? '.' : static_cast<char>('0' + grid[i]);
  }
  return text;
}

/// A filled grid: one pattern with its numbers, rows and columns exchanged.
Grid full_grid(Dice& dice) {
  constexpr int kPattern[4][4] = {{1, 2, 3, 4}, {3, 4, 1, 2}, {2, 1, 4, 3}, {4, 3, 2, 1}};
  std::vector<int> numbers = {1, 2, 3, 4}, rows = {0, 1, 2, 3}, columns = rows;
  dice.shuffle(numbers);
  for (std::vector<int>* lines : {&rows, &columns}) {
    if (dice.once_in(2)) std::swap((*lines)[0], (*lines)[1]);
    if (dice.once_in(2)) std::swap((*lines)[2], (*lines)[3]);
    if (dice.once_in(2)) std::swap((*lines)[0], (*lines)[2]), std::swap((*lines)[1], (*lines)[3]);
  }
  Grid grid{};
  for (size_t i = 0; i < 16; ++i)
    grid[i] = numbers[static_cast<size_t>(kPattern[rows[i / 4]][columns[i % 4]] - 1)];
  return grid;
}

/// As many blanks as the difficulty, such that single steps fill them: the solution is then the only one.
Draft make_sudoku(Dice& dice, int64_t difficulty) {
  for (;;) {
    const Grid full = full_grid(dice);
    Grid grid = full;
    std::vector<size_t> cells;
    for (size_t i = 0; i < 16; ++i) cells.push_back(i);
    dice.shuffle(cells);
    int64_t blanks = 0;
    for (const size_t cell : cells) {
      if (blanks == difficulty) break;
      grid[cell] = 0;
      if (static_cast<int64_t>(single_steps(grid).size()) == blanks + 1)
        ++blanks;
      else
        grid[cell] = full[cell];
    }
    if (blanks < difficulty) continue;
    return {"sudoku\n" + grid_text(grid, "\n"), {{"grid", grid}, {"answer", grid_text(full, " ")}}};
  }
}

Trace solve_sudoku(const Json& data, Dice& dice, TraceStyle style) {
  const auto grid = data.at("grid").get<Grid>();
  Grid filled = grid;
  Steps steps(dice, style);
  for (const auto& [cell, number] : single_steps(grid)) {
    const int seen = seen_from(filled, cell);
    std::string numbers;
    for (int n = 1; n <= 4; ++n)
      if ((seen >> n & 1) != 0) numbers += fmt::format(" {}", n);
    steps.step(
        number,
        [&, c = cell](int64_t v) {
          return fmt::format("{} {} sees{} so {}", c / 4 + 1, c % 4 + 1, numbers, v);
        },
        [&](int64_t v) {
          std::string all;
          for (int n = 1; n <= 4; ++n)
            if ((seen >> n & 1) != 0 || n == v) all += fmt::format("{} ", n);
          return all + "all";
        });
    filled[static_cast<size_t>(cell)] = number;
  }
  steps.line(grid_text(filled, "\n"));
  return {steps.text(), data.at("answer").get<std::string>()};
}

/// What a person says about two others.
struct Statement {
  int kind = 0, first = 0, second = 0;
  bool holds(unsigned truthful) const {
    const bool a = (truthful >> first & 1) != 0, b = (truthful >> second & 1) != 0;
    switch (kind) {
      case 0:
        return !a;
      case 1:
        return a == b;
      case 2:
        return a != b;
      case 3:
        return !a || !b;
      default:
        return !a && !b;
    }
  }
  std::string text() const {
    const char a = static_cast<char>('A' + first), b = static_cast<char>('A' + second);
    switch (kind) {
      case 0:
        return fmt::format("{} lies", a);
      case 1:
        return fmt::format("{} and {} same", a, b);
      case 2:
        return fmt::format("{} and {} differ", a, b);
      case 3:
        return fmt::format("{} or {} lies", a, b);
      default:
        return fmt::format("{} and {} lie", a, b);
    }
  }
};

struct Island {
  std::vector<Statement> statements;
  unsigned count() const { return static_cast<unsigned>(statements.size()); }
  /// The first person whose statement is true and who lies, or the reverse; count(): nobody.
  unsigned contradiction(unsigned truthful) const {
    for (unsigned i = 0; i < count(); ++i)
      if (statements[i].holds(truthful) != ((truthful >> i & 1) != 0)) return i;
    return count();
  }
  std::string text(unsigned truthful) const {
    std::string text;
    for (unsigned i = 0; i < count(); ++i)
      text += std::string(i == 0 ? "" : " ") + ((truthful >> i & 1) != 0 ? 'T' : 'L');
    return text;
  }
};

Draft make_knights(Dice& dice, int64_t difficulty) {
  for (;;) {
    Island island;
    const auto count = static_cast<int>(difficulty);
    std::string prompt = "knights";
    Json data = {{"statements", Json::array()}};
    for (int i = 0; i < count; ++i) {
      Statement s{static_cast<int>(dice.below(5)), static_cast<int>(dice.below(count)),
                  static_cast<int>(dice.below(count))};
      while (s.kind == 0 ? s.first == i : s.first == s.second) {
        s.first = static_cast<int>(dice.below(count)), s.second = static_cast<int>(dice.below(count));
      }
      prompt += fmt::format("\n{}: {}", static_cast<char>('A' + i), s.text());
      data["statements"].push_back({s.kind, s.first, s.second});
      island.statements.push_back(s);
    }
    std::vector<unsigned> solutions;
    for (unsigned truthful = 0; truthful < 1U << count; ++truthful)
      if (island.contradiction(truthful) == island.count()) solutions.push_back(truthful);
    if (solutions.size() != 1) continue;
    data["answer"] = island.text(solutions[0]);
    return {prompt, data};
  }
}

/// Tries who tells the truth until nobody contradicts; in half of the traces the order is turned round.
Trace solve_knights(const Json& data, Dice& dice, TraceStyle style) {
  Island island;
  for (const Json& s : data.at("statements")) island.statements.push_back({s[0], s[1], s[2]});
  Steps steps(dice, style);
  const unsigned all = 1U << island.count(), turned = dice.once_in(2) ? all - 1 : 0;
  for (unsigned i = 0; i < all; ++i) {
    const unsigned truthful = i ^ turned, bad = island.contradiction(truthful);
    std::string line = island.text(truthful);
    const bool found = bad == island.count();
    if (!found && steps.checked())
      line += fmt::format(" ? {} {}: {}", (truthful >> bad & 1) != 0 ? 'T' : 'L',
                          static_cast<char>('A' + bad), island.statements[bad].text());
    steps.line(line + (found ? " yes" : " no"));
    if (found) break;
  }
  return {steps.text(), data.at("answer").get<std::string>()};
}

constexpr Family kPuzzleFamilies[] = {
    {"maze",
     "a way from S to G between walls (#); answer: moves U D L R",
     {1, 12},
     make_maze,
     right_maze,
     solve_maze},
    {"sudoku",
     "fills 4 x 4 cells, as many blanks as the difficulty; answer: all 16 numbers",
     {1, 12},
     make_sudoku,
     same_words,
     solve_sudoku},
    {"knights",
     "who tells the truth (T) and who lies (L); answer: a letter a person",
     {2, 6},
     make_knights,
     same_words,
     solve_knights},
};

}  // namespace

std::span<const Family> puzzle_families() {
  return kPuzzleFamilies;
}

}  // namespace ingot::environments
