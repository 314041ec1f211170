// Environments of structure: shortest paths, Boolean circuits.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "environments/answer.h"
#include "environments/family.h"
#include "environments/trace.h"

namespace ingot::environments {
namespace {

/// An undirected graph over the nodes 0 .. nodes - 1 (A, B, ...); 0: no edge. The way leads from the first
/// node to the last.
struct Graph {
  int64_t nodes;
  std::vector<int64_t> lengths;  ///< [nodes][nodes]
  explicit Graph(int64_t n) : nodes(n), lengths(static_cast<size_t>(n * n), 0) {}
  explicit Graph(const Json& data) : Graph(data.at("nodes").get<int64_t>()) {
    for (const Json& edge : data.at("edges")) connect(edge[0], edge[1], edge[2]);
  }
  int64_t length(int64_t a, int64_t b) const { return lengths[static_cast<size_t>(a * nodes + b)]; }
  void connect(int64_t a, int64_t b, int64_t length) {
    lengths[static_cast<size_t>(a * nodes + b)] = lengths[static_cast<size_t>(b * nodes + a)] = length;
  }
  static char name(int64_t node) { return static_cast<char>('A' + node); }
};

/// Dijkstra from node 0: nodes in the order in which their distance is known.
struct Distances {
  std::vector<int64_t> order, distance, from;
  explicit Distances(const Graph& graph) : distance(static_cast<size_t>(graph.nodes), -1), from(distance) {
    std::vector<bool> known(distance.size());
    distance[0] = 0;
    for (;;) {
      int64_t next = -1;
      for (int64_t n = 0; n < graph.nodes; ++n)
        if (!known[at(n)] && distance[at(n)] >= 0 && (next < 0 || distance[at(n)] < distance[at(next)]))
          next = n;
      if (next < 0) return;
      known[at(next)] = true, order.push_back(next);
      for (int64_t n = 0; n < graph.nodes; ++n) {
        const int64_t length = graph.length(next, n), through = distance[at(next)] + length;
        if (length > 0 && (distance[at(n)] < 0 || through < distance[at(n)]))
          distance[at(n)] = through, from[at(n)] = next;
      }
    }
  }
  static size_t at(int64_t node) { return static_cast<size_t>(node); }
  std::string way(int64_t node) const {
    std::string nodes;
    for (; node >= 0; node = from[at(node)]) nodes.insert(nodes.begin(), Graph::name(node));
    return joined(nodes, " ");
  }
};

Draft make_path(Dice& dice, int64_t difficulty) {
  const int64_t nodes = difficulty + 3;
  for (;;) {
    Graph graph(nodes);
    Json edges = Json::array();
    std::string prompt = fmt::format("path A to {}:", Graph::name(nodes - 1));
    for (int64_t a = 0; a < nodes; ++a)
      for (int64_t b = a + 1; b < nodes; ++b) {
        if (dice.below(nodes) >= 3) continue;  // about three edges a node
        const int64_t length = dice.between(1, 9);
        graph.connect(a, b, length);
        edges.push_back({a, b, length});
        prompt += fmt::format(" {}{} {}", Graph::name(a), Graph::name(b), length);
      }
    const Distances found(graph);
    const std::string way = found.way(nodes - 1);
    if (found.distance.back() < 0 || way.size() < 5) continue;  // at least two edges
    return {prompt, {{"nodes", nodes}, {"edges", edges}, {"length", found.distance.back()}, {"answer", way}}};
  }
}

bool right_path(const Json& data, const std::string& answer) {
  const Graph graph(data);
  const std::vector<std::string> words = words_of(answer);
  if (words.size() < 2 || static_cast<int64_t>(words.size()) > graph.nodes || words.front() != "A")
    return false;
  int64_t before = 0, total = 0;
  for (size_t i = 1; i < words.size(); ++i) {
    const int64_t node = words[i].size() == 1 ? words[i][0] - 'A' : -1;
    if (node < 0 || node >= graph.nodes || graph.length(before, node) == 0) return false;
    total += graph.length(before, node);
    before = node;
  }
  return before == graph.nodes - 1 && total == data.at("length").get<int64_t>();
}

Trace solve_path(const Json& data, Dice& dice, TraceStyle style) {
  const Graph graph(data);
  const Distances found(graph);
  Steps steps(dice, style);
  for (const int64_t node : found.order) {
    const int64_t from = found.from[Distances::at(node)];
    if (from < 0) continue;
    const int64_t before = found.distance[Distances::at(from)], length = graph.length(from, node);
    steps.step(
        found.distance[Distances::at(node)],
        [&](int64_t v) {
          return fmt::format("{} from {} {}+{}={}", Graph::name(node), Graph::name(from), before, length, v);
        },
        [&](int64_t v) { return fmt::format("{}-{}={} {}", v, length, v - length, before); });
    if (node == graph.nodes - 1) break;
  }
  return {steps.text(), found.way(graph.nodes - 1)};
}

/// A line of a circuit: name = a op b, or name = not a.
struct Gate {
  std::string op;
  int64_t first = 0, second = 0;
  bool value(const std::vector<bool>& values) const {
    const bool a = values[static_cast<size_t>(first)], b = values[static_cast<size_t>(second)];
    return op == "and" ? a && b : op == "or" ? a || b : op == "xor" ? a != b : !a;
  }
  static char name(int64_t line) { return static_cast<char>('a' + line); }
  std::string words(const std::vector<bool>& values, bool names) const {
    const auto word = [&](int64_t i) { return names ? name(i) : values[static_cast<size_t>(i)] ? 'T' : 'F'; };
    return op == "not" ? fmt::format("not {}", word(first))
                       : fmt::format("{} {} {}", word(first), op, word(second));
  }
};

Draft make_circuit(Dice& dice, int64_t difficulty) {
  std::vector<bool> values;
  std::string prompt = "circuit", answer;
  Json inputs = Json::array(), gates = Json::array();
  for (int64_t i = 0; i < 3; ++i) {
    values.push_back(dice.once_in(2));
    inputs.push_back(static_cast<bool>(values.back()));
    prompt += fmt::format(" {}={}", Gate::name(i), values.back() ? 'T' : 'F');
  }
  for (int64_t i = 0; i < difficulty + 1; ++i) {
    const auto known = static_cast<int64_t>(values.size());
    Gate gate{std::vector<std::string>{"and", "or", "xor", "not"}[static_cast<size_t>(dice.below(4))],
              dice.below(known), dice.below(known)};
    while (gate.second == gate.first) gate.second = dice.below(known);
    prompt += fmt::format("\n{} = {}", Gate::name(known), gate.words(values, true));
    gates.push_back({gate.op, gate.first, gate.second});
    values.push_back(gate.value(values));
    answer += std::string(i == 0 ? "" : " ") + (values.back() ? 'T' : 'F');
  }
  return {prompt, {{"inputs", inputs}, {"gates", gates}, {"answer", answer}}};
}

Trace solve_circuit(const Json& data, Dice& dice, TraceStyle style) {
  std::vector<bool> values;
  for (const Json& input : data.at("inputs")) values.push_back(input);
  Steps steps(dice, style);
  for (const Json& g : data.at("gates")) {
    const Gate gate{g[0], g[1], g[2]};
    const std::string names = gate.words(values, true), operands = gate.words(values, false);
    const bool value = gate.value(values);
    const char name = Gate::name(static_cast<int64_t>(values.size()));
    const auto line = [&](bool claimed) {
      return fmt::format("{} = {} = {} = {}", name, names, operands, claimed ? 'T' : 'F');
    };
    if (steps.slips()) steps.line(fmt::format("{} ? {} {} no", line(!value), operands, value ? 'T' : 'F'));
    steps.line(line(value) +
               (steps.checked() ? fmt::format(" ? {} {} yes", operands, value ? 'T' : 'F') : ""));
    values.push_back(value);
  }
  return {steps.text(), data.at("answer").get<std::string>()};
}

constexpr Family kStructureFamilies[] = {
    {"path",
     "a shortest path in a graph with lengths; answer: its nodes",
     {1, 20},
     make_path,
     right_path,
     solve_path},
    {"circuit",
     "values of a Boolean circuit, gate after gate; answer: T or F for each gate",
     {1, 20},
     make_circuit,
     same_words,
     solve_circuit},
};

}  // namespace

std::span<const Family> structure_families() {
  return kStructureFamilies;
}

}  // namespace ingot::environments
