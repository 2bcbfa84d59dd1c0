// The names of CLI11 that our declarations need. It has no header of declarations, and its whole takes seconds to compile.
#pragma once

namespace CLI {
class App;
}  // namespace CLI
