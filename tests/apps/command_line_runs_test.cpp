// The command line: requests for help, wrong usage, --json, completion and manual page, terminals of all
// kinds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/invocation.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::command_line_runs_test {

/// As typed where the path has the program.
test::ProcessResult ingot(std::vector<std::string> words, std::vector<std::string> environment = {}) {
  words.insert(words.begin(), INGOT_BINARY);
  const std::string binary = INGOT_BINARY;
  environment.push_back("PATH=" + binary.substr(0, binary.find_last_of('/')) + ":/usr/bin:/bin");
  return test::run_process(words, environment);
}

/// The program refuses the words as wrong usage and says each of the texts.
void refuses(const std::vector<std::string>& words, const std::vector<std::string>& texts) {
  const test::ProcessResult r = ingot(words);
  EXPECT_EQ(r.exit_code, 2) << r.output;
  EXPECT_EQ(r.output.rfind("error: ", 0), 0u) << r.output;
  EXPECT_NE(r.output.find("\nhint: "), std::string::npos) << r.output;
  for (const std::string& text : texts)
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
}

TEST(CommandLine, HelpAndVersionAreFoundHoweverTheyAreAskedFor) {
  const std::string help = ingot({"--help"}).output;
  EXPECT_NE(help.find("Usage: ingot"), std::string::npos) << help;
  EXPECT_EQ(ingot({"help"}).output, help);
  EXPECT_EQ(ingot({}).output, help);
  EXPECT_EQ(ingot({"help", "run"}).output, ingot({"run", "--help"}).output);
  EXPECT_EQ(ingot({"help", "tokenizer", "encode"}).output, ingot({"tokenizer", "encode", "-h"}).output);
  EXPECT_EQ(ingot({"version"}).output, ingot({"--version"}).output);
  EXPECT_EQ(ingot({"help"}).exit_code, 0);
  refuses({"help", "rnu"}, {"there is no command 'ingot rnu'", "did you mean `ingot run`?"});
}

TEST(CommandLine, WrongUsageIsNamedWithTheNearestName) {
  refuses({"modle"}, {"there is no command 'ingot modle'", "did you mean", "model"});
  refuses({"train", "x.toml"}, {"there is no command 'ingot train'", "`ingot run`?"});
  refuses({"trian", "x.toml"}, {"there is no command 'ingot trian'", "`ingot run`?"});
  refuses({"tokenizer", "encod"}, {"there is no command 'ingot tokenizer encod'", "tokenizer encode"});
  refuses({"tokenizer"}, {"needs a command", "encode"});
  refuses({"model", "zaya1-8b", "--jsno"}, {"has no option '--jsno'", "did you mean '--json'?"});
  refuses({"generate", "--temprature", "1", "--run", "x"}, {"has no option '--temprature'", "--temperature"});
  refuses({"generate", "--temperature", "hot", "--run", "x"},
          {"--temperature: expected a number, found 'hot'"});
  refuses({"model", "--context", "long"}, {"--context: expected an integer, found 'long'"});
  refuses({"model", "--context"}, {"--context needs a value"});
  refuses({"model", "gpt2", "more"}, {"does not take the argument 'more'"});
  refuses({"run"}, {"needs the argument 'recipe'"});
  refuses({"run", "x.toml", "--plann"}, {"has no option '--plann'", "did you mean '--plan'?"});
  refuses({"average", "a", "b"}, {"needs the option --out"});
  refuses({"launch", "-n", "2"}, {"there is no command to launch"});
  refuses({"launch", "-n", "0", "--", "run", "x.toml"}, {"--ranks: must be at least 1, found 0", "found 0"});
  refuses({"bench", "machine", "--trials=0"}, {"--trials: must be at least 1, found 0"});
}

TEST(CommandLine, CommandsInMessagesAreAsTyped) {
  const test::TempDir folder;
  std::system(("ln -s '" INGOT_BINARY "' '" + (folder / "ingot") + "'").c_str());
  const auto in_shell = [&](const std::string& line) {
    return test::run_process({"/bin/sh", "-c", "cd '" + folder.path() + "' && " + line}).output;
  };
  EXPECT_NE(in_shell("./ingot help run").find("\n  ./ingot run recipe.toml "), std::string::npos);
  EXPECT_NE(in_shell("./ingot modle").find("`./ingot model`"), std::string::npos)
      << in_shell("./ingot modle");
  EXPECT_NE(in_shell("PATH=$PWD:$PATH ingot help run").find("\n  ingot run recipe.toml "), std::string::npos);
  EXPECT_NE(in_shell("PATH=$PWD:$PATH ./ingot help run").find("\n  ingot run recipe.toml "),
            std::string::npos);

  set_invocation("../my tools/ingot", {"run", "import"});
  EXPECT_EQ(as_typed("`ingot run x` trains; ingot import y"),
            "`'../my tools/ingot' run x` trains; '../my tools/ingot' import y");
  EXPECT_EQ(as_typed("ingot runs well, Ingot run, the program ingot"),
            "ingot runs well, Ingot run, the program ingot");
  set_invocation("ingot", {"run"});
  EXPECT_EQ(as_typed("ingot run x"), "ingot run x");
}

TEST(CommandLine, JsonHasOneMeaning) {
  const test::TempDir folder;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"model", "--json", "gpt2"},
        {"model", "--json"},
        {"kernels", "--json"},
        {"bench", "ops", "--json", "zaya-tiny", "--length=8", "--batch=1", "--trials=1", "--seconds=0.0001",
         "--op=linear", "--vocab=16"},
        {"doctor", folder.path(), "--json", "--disk=0"}}) {
    const test::ProcessResult r = ingot(words, {"INGOT_LOG=error"});
    EXPECT_TRUE(nlohmann::json::accept(r.output)) << words[0] << "\n" << r.output;
  }
  const std::string file = folder / "kernels.json";
  const test::ProcessResult both = ingot({"kernels", "--json=" + file});
  EXPECT_NE(both.output.find("instruction set"), std::string::npos) << both.output;
  EXPECT_TRUE(nlohmann::json::parse(test::read_text(file)).contains("ops"));
  const test::ProcessResult former = ingot({"kernels", "--json", folder / "former.json"});
  EXPECT_EQ(former.exit_code, 0) << former.output;
  EXPECT_NE(former.output.find("--json=" + (folder / "former.json")), std::string::npos) << former.output;
  EXPECT_EQ(test::read_text(folder / "former.json"), test::read_text(file));
}

TEST(CommandLine, CompletionCompletes) {
  const test::TempDir folder;
  const auto completed = [&](const std::string& words, int at) {
    return test::run_process({"/bin/bash", "-c",
                              "source <('" INGOT_BINARY "' completion bash); COMP_WORDS=(" + words +
                                  "); COMP_CWORD=" + std::to_string(at) +
                                  "; _ingot; echo \"${COMPREPLY[@]}\""})
        .output;
  };
  EXPECT_EQ(completed("ingot che", 1), "checkpoint\n");
  EXPECT_EQ(completed("ingot checkpoint v", 2), "verify\n");
  EXPECT_EQ(completed("ingot run recipe.toml --pl", 3), "--plan\n");
  EXPECT_EQ(completed("ingot run rec", 2), "\n") << "files are the shell's to complete";
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const test::ProcessResult r = ingot({"completion", shell});
    EXPECT_EQ(r.exit_code, 0);
    EXPECT_NE(r.output.find("checkpoint"), std::string::npos);
    const std::string script = folder / shell;
    test::write_text(script, r.output);
    if (std::system((std::string("command -v ") + shell + " >/dev/null").c_str()) == 0) {
      EXPECT_EQ(test::run_process({"/usr/bin/env", shell, "-n", script}).output, "") << shell;
    }
  }
  refuses({"completion", "tcsh"}, {"tcsh"});
}

TEST(CommandLine, TheManualPageHasEveryCommand) {
  const std::string page = ingot({"man"}).output;
  EXPECT_EQ(page.rfind(".TH INGOT 1", 0), 0u);
  for (const char* text :
       {".SS ingot run [OPTIONS] recipe", ".SS ingot tokenizer encode", "\\-\\-temperature",
        ".SH EXIT STATUS", "INGOT_THREADS", "INGOT_SIM", "INGOT_EMULATE"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
  for (const char* bad : {"\n.ingot", "\n'"}) EXPECT_EQ(page.find(bad), std::string::npos) << bad;
  const test::TempDir folder;
  test::write_text(folder / "ingot.1", page);
  if (std::system("command -v groff >/dev/null") == 0) {
    const test::ProcessResult r =
        test::run_process({"/usr/bin/env", "groff", "-man", "-Tascii", "-ww", folder / "ingot.1"});
    EXPECT_EQ(r.output.find("warning"), std::string::npos) << r.output.substr(0, 500);
  }
}

// No home folder, narrow and dumb terminals, none, and a reader that has gone.
TEST(CommandLine, WorksWhereverItIsTyped) {
  for (const std::string& line : {std::string("env -u HOME -u TERM \"$0\" completion bash >/dev/null"),
                                  std::string("env -u HOME -u TERM \"$0\" man >/dev/null"),
                                  std::string("COLUMNS=20 TERM=dumb \"$0\" help >/dev/null"),
                                  std::string("setsid \"$0\" help run </dev/null >/dev/null"),
                                  std::string("env -i \"$0\" help >/dev/null")}) {
    const test::ProcessResult r = test::run_process({"/bin/bash", "-c", line, INGOT_BINARY});
    EXPECT_EQ(r.exit_code, 0) << line << "\n" << r.output;
    EXPECT_EQ(r.output, "") << line;
  }
  for (const char* command : {"man", "help", "completion bash"}) {
    const test::ProcessResult r = test::run_process(
        {"/bin/bash", "-c", "\"$0\" " + std::string(command) + " | head -n 1 >/dev/null; exit 0",
         INGOT_BINARY});
    EXPECT_EQ(r.output.find("internal error"), std::string::npos) << r.output;
  }
}

}  // namespace ingot::command_line_runs_test
