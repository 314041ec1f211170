// The journal of a guard: one line before and after each of its actions, with the situation that it decided
// upon. From it a guard that was killed continues, and `ingot guard explain` decides again.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "guard/books.h"
#include "guard/decide.h"

namespace ingot::guard {

enum class Event : uint8_t {
  begin,     ///< the guard itself began or went on
  noted,     ///< a sign appeared that is not sure yet
  alerted,   ///< a rule that only tells
  decided,   ///< a decision; its actions follow
  act,       ///< an action is about to begin
  done,      ///< it ended
  answered,  ///< a person's answer replaces what was left of the decision
  job,       ///< a start of the job, its number in `number`
  progress,  ///< the job reached a new highest step for the first time after a restart
  finished
};
constexpr auto enum_names(Event) {
  return names_in_order<Event>("begin", "noted", "alerted", "decided", "act", "done", "answered", "job",
                               "progress", "finished");
}

struct Entry {
  int64_t number = 0;  ///< of the entry, from 1
  double time = 0;     ///< seconds of the guard's clock, which starts at 0 with the journal and never jumps
  Event event = Event::begin;
  std::string rule, reason, text;
  std::vector<Action> actions;
  std::vector<std::string> nodes;  ///< suspects; of done: those left out
  int64_t index = -1;              ///< position of the action in the decision
  int64_t value = 0;               ///< of job: number of the start; of progress: the step
  std::optional<Situation> situation;

  std::string json() const;
  /// Error that begins with `where` for a damaged line.
  static Entry parse(std::string_view line, const std::string& where = "journal");
};

/// Where journal and books are kept.
class Store {
 public:
  virtual ~Store() = default;
  /// All entries so far; damaged lines are left out with a warning.
  virtual std::vector<Entry> entries() = 0;
  /// On disk when it returns.
  virtual void append(const Entry& entry) = 0;
  virtual void keep(const Books& books) = 0;
  virtual std::optional<Books> books() = 0;
};

/// journal.jsonl and books.json in a folder, which must exist.
class FileStore final : public Store {
 public:
  FileStore(FileSystem& fs, std::string folder) : fs_(fs), folder_(std::move(folder)) {}
  std::vector<Entry> entries() override;
  void append(const Entry& entry) override;
  void keep(const Books& books) override;
  std::optional<Books> books() override;

 private:
  FileSystem& fs_;
  std::string folder_;
};

/// Adds to the past what an entry says of it, for decide(). Entries come in their order.
void remember(std::vector<PastMatch>& past, const Entry& entry);

}  // namespace ingot::guard
