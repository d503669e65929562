/* cecl_info --tuning: the table of thresholds in force. */
#ifndef CECL_BENCH_INFO_TUNING_H
#define CECL_BENCH_INFO_TUNING_H

/* Both print the table, or why they cannot. argv: the arguments from --tuning or --tuning-file on. */
int info_tuning(int argc, char **argv);
int info_tuning_file(int argc, char **argv);

extern const char info_tuning_usage[];

#endif
