// Signals that ask the command to end are noted, not obeyed at once, so that ranks and files can be cleaned up first.
#pragma once

namespace moeway::cli {

// While it lives, INT, TERM, HUP and QUIT are caught.
class SignalCatcher {
 public:
  SignalCatcher();
  ~SignalCatcher();
  SignalCatcher(const SignalCatcher&) = delete;
  SignalCatcher& operator=(const SignalCatcher&) = delete;

  // The signal that came, 0 if none.
  static int caught();
};

// In a rank's process: those that a terminal sends to everybody are the parent's to handle; TERM ends the rank.
void leave_signals_to_parent();

// Ends this process as the signal would have, had it not been caught, so that a shell sees what happened.
[[noreturn]] void end_by(int signal);

}  // namespace moeway::cli
