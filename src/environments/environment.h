// Environments: problems that a program makes and a program judges. A problem is a pure function of
// (environment, seed, number, difficulty); a reply is judged by its answer alone, whatever its reasoning
// says. What RL samples, what evaluation asks and what data for training is made of are the same problems:
// seeds from kHeldOutSeeds on give problems that smaller seeds never give. docs/environments.md lists them.
//
// Thread-safety: environments never change after they are made; const functions may be called from many
// threads at once where thread_safe() says so.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/enum.h"
#include "base/philox.h"
#include "chat/conversation.h"

namespace ingot::environments {

/// Seeds from here on are for evaluation: an eighth of all problems, by the hash of their prompt.
constexpr uint64_t kHeldOutSeeds = uint64_t{1} << 32;

/// Difficulties are whole numbers, each harder than the one before.
struct DifficultyRange {
  int64_t least = 0, most = 0;
  bool operator==(const DifficultyRange&) const = default;
};

struct Problem {
  std::string environment;  ///< its name
  uint64_t seed = 0, number = 0;
  int64_t difficulty = 0;
  chat::Conversation prompt;  ///< ends with the user's message
  std::string data;           ///< JSON text of what the verifier knows; never shown to a model
  /// "sort/1/17@5": environment, seed, number, difficulty.
  std::string id() const;
};

/// A named share of the reward, for metrics.
struct RewardPart {
  std::string name;
  double value = 0;
};

struct Verdict {
  double reward = 0;              ///< finite; of the built-in environments 0 or 1
  std::vector<RewardPart> parts;  ///< "answered", "correct", and those of the environment's own
  std::string answer;             ///< as it was judged, in one form for equal texts; "" where there is none
  /// The verifier failed, not the reply: the sample must be left out, never rewarded. `note` says why.
  bool infrastructure = false;
  std::string note;  ///< why the reward is not 1; may be empty
};

/// How a teacher's trace is written. answer: no reasoning. plain: the steps. checked: each result is compared
/// beside the number that it must equal, with yes or no behind it. slips: checked, with wrong steps that the
/// check finds and the next step mends.
enum class TraceStyle : uint8_t { answer, plain, checked, slips };
constexpr auto enum_names(TraceStyle) {
  return names_in_order<TraceStyle>("answer", "plain", "checked", "slips");
}

class Environment {
 public:
  virtual ~Environment() = default;
  virtual const std::string& name() const = 0;
  /// What is asked, in one line, with the form of the answer.
  virtual const std::string& about() const = 0;
  virtual DifficultyRange difficulty() const = 0;
  virtual bool thread_safe() const { return true; }
  /// Error where the difficulty is outside the range.
  virtual Problem make(uint64_t seed, uint64_t number, int64_t difficulty) const = 0;
  /// A right reply with a teacher's reasoning, where the environment has a teacher. A function of problem,
  /// random numbers and style. Some searches give up on purpose (slips): their answer is wrong.
  virtual std::optional<chat::Message> solve(const Problem& problem, const Random& random,
                                             TraceStyle style) const = 0;

  /// Judges a parsed reply: the final answer (answer.h) of its content. An exception of the verifier, or a
  /// reward that is not finite, becomes an infrastructure verdict. Error: a problem of another environment.
  Verdict judge(const Problem& problem, const chat::Message& reply) const;
  /// The same for a content alone.
  Verdict judge(const Problem& problem, const std::string& content) const;

 protected:
  /// The verdict on an answer that is not empty; judge() adds "answered" and "correct" and checks the reward.
  virtual Verdict verify(const Problem& problem, const std::string& answer) const = 0;
};

using EnvironmentPointer = std::shared_ptr<const Environment>;
using EnvironmentMaker = std::function<EnvironmentPointer()>;

/// Adds an environment of a program's own. Error: the name is taken, or no lower-case word.
void register_environment(const std::string& name, EnvironmentMaker maker);
/// All that are registered, the built-in ones too, in alphabetical order.
std::vector<std::string> environment_names();
/// The environment of that name, made once; Error with the nearest name else. A name that ends in .jsonl is
/// a file of rows (row_environment.h).
EnvironmentPointer find_environment(const std::string& name);

/// The problem that an id names; Error where it names none.
Problem problem_of(const std::string& id);

}  // namespace ingot::environments
