// See source.h. Files are mapped, so a document of a text file is a view and the page cache is the only
// buffer.
#include "data/source.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/log.h"

namespace ingot::data {
namespace {

namespace stdfs = std::filesystem;
using nlohmann::json;

bool ends_with_any(std::string name, std::initializer_list<std::string_view> endings) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view e) { return name.ends_with(e); });
}

/// Refuses what cannot be text, by its first bytes: packed files by their signature, others by a zero byte.
void refuse_binary(FileSystem& fs, const SourceFile& file) {
  const auto map = fs.map(file.path);  // refuses what is no file
  const std::string_view head(reinterpret_cast<const char*>(map->bytes().data()),
                              std::min<size_t>(map->bytes().size(), 4096));
  using namespace std::string_view_literals;
  static constexpr std::pair<std::string_view, const char*> kPacked[] = {{"\x1f\x8b"sv, "gzip"},
                                                                         {"\x28\xb5\x2f\xfd"sv, "zstd"},
                                                                         {"\xfd"
                                                                          "7zXZ"sv,
                                                                          "xz"},
                                                                         {"BZh"sv, "bzip2"},
                                                                         {"PK\x03\x04"sv, "zip"},
                                                                         {"PAR1"sv, "parquet"},
                                                                         {"\x04\x22\x4d\x18"sv, "lz4"},
                                                                         {"ARROW1"sv, "arrow"}};
  for (const auto& [signature, kind] : kPacked)
    if (head.starts_with(signature))
      throw Error(fmt::format("'{}' is a {} file, expected plain text or JSON lines", file.path, kind),
                  "unpack it first");
  if (head.find('\0') != std::string_view::npos)
    throw Error(fmt::format("'{}' has a zero byte near its start: it is not UTF-8 text", file.path),
                "leave the file out, or convert it (for UTF-16: iconv -f UTF-16 -t UTF-8)");
}

std::map<std::string, FileReaderMaker>& formats() {
  static std::map<std::string, FileReaderMaker> all;
  return all;
}

std::string format_of(const std::string& path) {
  for (const auto& [ending, make] : formats())
    if (ends_with_any(path, {ending})) return ending;
  return "";
}

void add_file(FileSystem& fs, const std::string& path, std::vector<SourceFile>& files) {
  SourceFile file = source_file(path);
  file.bytes = fs.size(path);
  if (file.format.empty()) refuse_binary(fs, file);
  files.push_back(std::move(file));
}

/// The files below a folder. `around`: the folders that it lies in and that were entered, as real paths.
void add_folder(FileSystem& fs, const std::string& folder, std::vector<stdfs::path>& around,
                std::vector<SourceFile>& files) {
  std::error_code code;
  const stdfs::path real = stdfs::canonical(folder, code);
  if (code) fail("cannot open the folder '{}': {}", folder, code.message());
  if (std::find(around.begin(), around.end(), real) != around.end())
    return log::warn("skipped '{}': it is a link to a folder that it lies in, '{}'", folder, real.string());
  around.push_back(real);
  for (const std::string& name : fs.list(folder)) {
    if (name.starts_with('.')) continue;
    const std::string path = folder.ends_with('/') ? folder + name : folder + "/" + name;
    const stdfs::file_status status = stdfs::status(path, code);
    if (stdfs::is_directory(status)) {
      add_folder(fs, path, around, files);
    } else if (stdfs::is_regular_file(status)) {
      add_file(fs, path, files);
    } else {
      log::warn("skipped '{}': it is no file ({})", path, code ? code.message() : "a FIFO, device or socket");
    }
  }
  around.pop_back();
}

void add_path(FileSystem& fs, const std::string& path, std::vector<SourceFile>& files) {
  const size_t before = files.size();
  if (fs.exists(path)) {
    std::error_code code;
    if (!stdfs::is_directory(path, code)) return add_file(fs, path, files);
    std::vector<stdfs::path> around;
    add_folder(fs, path, around, files);
    if (files.size() == before) throw Error(fmt::format("the folder '{}' holds no files", path));
    return;
  }
  if (path.find_first_of("*?[") == std::string::npos)
    throw Error(
        fmt::format("there is no file or folder '{}'", path),
        "check the path of the data source; the first lines of a recipe say where its text comes from");
  glob_t found{};
  const int code = ::glob(path.c_str(), 0, nullptr, &found);
  std::vector<std::string> matches(found.gl_pathv, found.gl_pathv + (code == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  std::error_code ignored;
  for (const std::string& match : matches)
    if (!stdfs::is_directory(match, ignored)) add_file(fs, match, files);
  if (files.size() == before)
    throw Error(fmt::format("no file matches '{}'", path),
                "'*' does not cross folders; name a folder to take all below it");
}

/// The start of a text that may be long, for messages.
std::string excerpt(const std::string& text, size_t most = 40) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return fmt::format("{}...", text.substr(0, most));
}

std::string known_keys(const json& row) {
  std::string keys;
  int shown = 0;
  for (const auto& item : row.items()) {
    if (++shown > 8) return keys + ", ...";
    keys += fmt::format("{}'{}'", keys.empty() ? "" : ", ", excerpt(item.key()));
  }
  return keys.empty() ? "none" : keys;
}

json parse_row(std::string_view line, const std::string& where) {
  json row;
  try {
    row = json::parse(line);
  } catch (const json::exception& e) {
    std::string reason = e.what();
    reason.erase(0, reason.find("] ") + 2);
    if (const size_t read = reason.find("; last read: "); read != std::string::npos) {
      const std::string last = reason.substr(read);  // may hold all of the line: its end is what matters
      reason = excerpt(reason.substr(0, read), 200) +
               (last.size() <= 60 ? last : "; last read: '..." + excerpt(last.substr(last.size() - 40), 60));
    }
    throw Error(fmt::format("{}: not valid JSON: {}", where, excerpt(reason, 300)),
                "every line of a JSONL file must be one complete JSON object in UTF-8");
  }
  if (!row.is_object()) fail("{}: expected a JSON object, found {}", where, row.type_name());
  return row;
}

const std::string& text_of_row(const json& row, const std::string& field, const std::string& where) {
  const auto it = row.find(field);
  if (it == row.end())
    throw Error(fmt::format("{}: the row has no field '{}'; its fields: {}", where, field, known_keys(row)),
                "set the source's 'field' to the one that holds the text (and 'prompt_field' to that of its "
                "prompt, if any)");
  if (!it->is_string()) fail("{}: field '{}' is {}, expected a string", where, field, it->type_name());
  return it->get_ref<const std::string&>();
}

std::string_view without_outer_newlines(std::string_view text) {
  const size_t begin = text.find_first_not_of("\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of("\r\n") - begin + 1);
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

void register_file_format(const std::string& ending, FileReaderMaker make) {
  if (ending.size() < 2 || ending.front() != '.' || ending == ".jsonl" || ending == ".ndjson" ||
      !formats().emplace(ending, std::move(make)).second)
    fail(
        "'{}' cannot be registered as the ending of a file format: it is taken, or no ending such as "
        "\".csv\"",
        ending);
}

SourceFile source_file(const std::string& path) {
  return {path, 0, ends_with_any(path, {".jsonl", ".ndjson"}), format_of(path)};
}

std::vector<SourceFile> find_source_files(FileSystem& fs, const std::vector<std::string>& paths) {
  if (paths.empty())
    throw Error("a data source names no files", "give it at least one file, folder or pattern");
  std::vector<SourceFile> files;
  for (const std::string& path : paths) add_path(fs, path, files);
  std::set<std::string> seen;
  for (const SourceFile& file : files)
    if (!seen.insert(stdfs::path(file.path).lexically_normal().string()).second)
      throw Error(fmt::format("the file '{}' is named twice", file.path),
                  "its text would count twice; name it once");
  return files;
}

struct DocumentReader::State {
  FileSystem& fs;
  std::vector<SourceFile> files;
  SourceOptions options;
  size_t file = 0;  // the current one
  std::unique_ptr<MappedFile> map;
  std::string_view rest;  // of the current file
  int64_t line = 0;       // of a JSONL file
  uint64_t bytes_before = 0;
  std::string row;  // owner of a JSONL document
  size_t prompt_bytes = 0;
  std::unique_ptr<FileReader> reader;  // of a registered format

  void open() {
    map = fs.map(files[file].path);
    rest = {reinterpret_cast<const char*>(map->bytes().data()), map->bytes().size()};
    if (!files[file].format.empty())
      reader = formats().at(files[file].format)(rest, files[file].path);
    else if (rest.starts_with("\xEF\xBB\xBF"))
      rest.remove_prefix(3);
    line = 0;
  }
  std::string_view take(size_t size, size_t separator) {
    const std::string_view piece = rest.substr(0, size);
    rest.remove_prefix(std::min(rest.size(), size + separator));
    return piece;
  }
  std::string_view take_line() { return take(std::min(rest.find('\n'), rest.size()), 1); }

  std::string_view next_row() {
    const std::string_view text = take_line();
    ++line;
    if (is_blank(text) || options.whole_rows()) return is_blank(text) ? std::string_view() : text;
    const std::string where = fmt::format("{}:{}", files[file].path, line);
    const json fields = parse_row(text, where);
    row = options.prompt_field.empty() ? "" : text_of_row(fields, options.prompt_field, where);
    prompt_bytes = row.size();
    row += text_of_row(fields, options.field, where);
    if (prompt_bytes > 0 && row.size() == prompt_bytes)
      throw Error(fmt::format("{}: nothing follows the prompt: field '{}' is empty", where, options.field),
                  "remove the row, or write the answer that is to be in_loss");
    return row;
  }
  std::string_view next_paragraph() {
    const char* begin = rest.data();
    const char* end = begin;
    while (!rest.empty()) {
      const std::string_view text = take_line();
      if (is_blank(text)) break;
      end = text.data() + text.size();
    }
    return without_outer_newlines({begin, static_cast<size_t>(end - begin)});
  }
  /// The next piece of the current file; may be empty.
  std::string_view next_piece() {
    if (reader) {
      std::string_view document;
      if (!reader->next(document)) rest = {}, reader.reset();
      return document;
    }
    if (files[file].json_lines) return next_row();
    switch (options.split) {
      case DocumentSplit::whole_file:
        return take(rest.size(), 0);
      case DocumentSplit::blank_line:
        return next_paragraph();
      case DocumentSplit::marker:
        return without_outer_newlines(
            take(std::min(rest.find(options.marker), rest.size()), options.marker.size()));
    }
    return {};
  }
};

DocumentReader::DocumentReader(FileSystem& fs, std::vector<SourceFile> files, SourceOptions options)
    : state_(new State{fs, std::move(files), std::move(options), 0, nullptr, {}, 0, 0, {}, 0, nullptr}) {
  if (state_->options.split == DocumentSplit::marker && state_->options.marker.empty())
    throw Error("the document marker is empty", "set 'marker' to the text that stands between documents");
  if (state_->options.field.empty()) throw Error("the JSONL field name is empty");
  for (const SourceFile& f : state_->files) {
    if (state_->options.whole_rows() && !f.json_lines)
      throw Error(fmt::format("'{}' is plain text, but {} = true takes rows of JSONL files", f.path,
                              state_->options.preferences ? "preferences" : "conversations"),
                  "give plain text and such rows as two sources");
    if (!state_->options.prompt_field.empty() && !f.json_lines)
      throw Error(fmt::format("'{}' is plain text, but prompt_field = \"{}\" takes prompts from JSONL rows",
                              f.path, state_->options.prompt_field),
                  "give plain text and rows with prompts as two sources");
  }
}

DocumentReader::~DocumentReader() = default;

bool DocumentReader::next(std::string_view& document) {
  State& s = *state_;
  while (s.file < s.files.size()) {
    if (!s.map) s.open();
    while (!s.rest.empty()) {
      document = s.next_piece();
      if (!document.empty()) return true;
    }
    s.bytes_before += s.files[s.file].bytes;
    s.map.reset();
    ++s.file;
  }
  return false;
}

std::string DocumentReader::where() const {
  return fmt::format("{}:{}", state_->files[std::min(state_->file, state_->files.size() - 1)].path,
                     state_->line);
}
size_t DocumentReader::prompt_bytes() const {
  return state_->prompt_bytes;
}

uint64_t DocumentReader::bytes_done() const {
  return state_->bytes_before + (state_->map ? state_->map->bytes().size() - state_->rest.size() : 0);
}

}  // namespace ingot::data
