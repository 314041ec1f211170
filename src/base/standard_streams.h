// What a program owes its standard streams: they are open, an error of theirs is never lost, and none of them
// ends the program or keeps it from ending. Thread-safe.
#pragma once
#include <string>
#include <string_view>

namespace ingot {

/// Opens /dev/null in place of those of standard input, output and error that are closed; else the next file
/// that the program opens would get their number, and what is printed would be written into it. Call it
/// before anything is opened.
void open_standard_streams();

/// Writes a text for people: in pieces that the reader of a pipe gets whole, waiting for a reader that is
/// slow. What cannot be written (a closed terminal, a full disk) is dropped: it is not an error of the job.
void write_to_reader(int file, std::string_view text) noexcept;

/// With true, write_to_reader() drops what its reader does not take within 0.1 s (a full pipe, a stopped
/// terminal). Safe in a signal handler: a program that is told to end calls it, so that what it still has to
/// save does not wait for a reader.
void drop_stalled(bool drop);

/// Writes what is still buffered for standard output. False where that, or an earlier part, was lost;
/// `reason` is the system's.
bool flush_standard_output(std::string& reason);

}  // namespace ingot
