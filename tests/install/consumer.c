/* Uses an installed moeway from C. */
#include <moeway/c_api.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  moeway_all_to_all_config config;
  moeway_all_to_all_sizes sizes;
  if (argc < 2 || strcmp(moeway_version(), argv[1]) != 0) {
    printf("moeway_version() is %s\n", moeway_version());
    return 1;
  }
  moeway_all_to_all_config_init(&config);
  memset(&sizes, 0, sizeof(sizes));
  sizes.struct_size = sizeof(sizes);
  /* A config without experts is refused, and the message says so. */
  if (moeway_all_to_all_get_sizes(&config, 0, 1, &sizes) != MOEWAY_INVALID_ARGUMENT) {
    printf("a config without experts was accepted\n");
    return 1;
  }
  if (strstr(moeway_last_error(), "num_experts") == NULL) {
    printf("the message does not name num_experts: %s\n", moeway_last_error());
    return 1;
  }
  return 0;
}
