/* Prints the thresholds in force, with CECL_TUNING's rows: as a table for people, or as a file. */
#include "info_tuning.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/tuning.h"
#include "util/settings.h"

const char info_tuning_usage[] =
    "  --tuning           the thresholds in force, CECL_TUNING applied\n"
    "  --tuning-file      the same as a file that CECL_TUNING takes\n"
    "    --ranks N        only what holds for N ranks\n"
    "    --device DEVICE  only what holds on cuda or host\n"
    "    --evidence       with --tuning: also the evidence for each value\n";

#define MOST_LINE 100 /* columns */

struct view {
    struct cecl_tuning_file file; /* CECL_TUNING's */
    const char *path;             /* that file's name; NULL: none */
    int ranks;                    /* 0: any */
    enum cecl_tuning_device device;
    bool evidence;
};

/* ---- which rows are in force */

/* Whether row `a` fits every setup that row `b` fits. */
static bool covers(const struct cecl_tuning_row *a, const struct cecl_tuning_row *b)
{
    return a->which == b->which && a->first <= b->first && a->last >= b->last &&
           (a->device == CECL_TUNING_ANY || a->device == b->device);
}

static bool is_replaced(const struct view *view, const struct cecl_tuning_row *row)
{
    for (size_t i = 0; i < view->file.nrows && &view->file.rows[i] != row; i++)
        if (covers(&view->file.rows[i], row))
            return true;
    return false;
}

/* Whether this row is in force for view->ranks ranks on one of the requested devices. */
static bool holds(const struct view *view, const struct cecl_tuning_row *row)
{
    for (int d = 0; d < CECL_TUNING_DEVICES; d++) {
        const enum cecl_tuning_device device = (enum cecl_tuning_device)d;
        if ((view->device == CECL_TUNING_ANY || view->device == device) &&
            cecl_tuning_row_of(&view->file, row->which, device, view->ranks) == row)
            return true;
    }
    return false;
}

static bool is_shown(const struct view *view, const struct cecl_tuning_row *row)
{
    if (view->ranks > 0)
        return holds(view, row);
    const bool elsewhere = view->device != CECL_TUNING_ANY && row->device != CECL_TUNING_ANY &&
                           row->device != view->device;
    return !elsewhere && !is_replaced(view, row);
}

typedef void (*show)(const struct view *view, const struct cecl_tuning_row *row);

/* Shows the rows of one threshold that are in force: the file's, then the built-in ones. */
static void each_row(const struct view *view, enum cecl_threshold which, show show_row)
{
    for (size_t i = 0; i < view->file.nrows; i++)
        if (view->file.rows[i].which == which && is_shown(view, &view->file.rows[i]))
            show_row(view, &view->file.rows[i]);
    for (size_t i = 0; i < cecl_tuning_nrows; i++)
        if (cecl_tuning_rows[i].which == which && is_shown(view, &cecl_tuning_rows[i]))
            show_row(view, &cecl_tuning_rows[i]);
}

/* ---- for people */

/* Prints words in lines that begin with `prefix` and have at most MOST_LINE columns. */
static void print_folded(const char *prefix, const char *words)
{
    size_t room = MOST_LINE - strlen(prefix);
    while (strlen(words) > room) {
        size_t length = room;
        while (length > 0 && words[length] != ' ')
            length--;
        if (length == 0)
            break; /* a word is longer than a line */
        printf("%s%.*s\n", prefix, (int)length, words);
        words += length + 1;
    }
    printf("%s%s\n", prefix, words);
}

static void show_line(const struct view *view, const struct cecl_tuning_row *row)
{
    char ranks[CECL_TUNING_TEXT], value[CECL_TUNING_TEXT];
    cecl_tuning_ranks_text(row, ranks);
    cecl_tuning_value_text(row->which, row->value, value);
    printf("  %-42s %-6s %-6s %11s  %-11s  ", cecl_thresholds[row->which].name, ranks,
           cecl_tuning_device_text(row->device), value,
           cecl_tuning_unit_text(cecl_thresholds[row->which].unit));
    if (row->line > 0)
        printf("CECL_TUNING, line %d\n", row->line);
    else
        puts(row->measured ? "measured" : "not measured");
    if (view->evidence && row->evidence)
        print_folded("        ", row->evidence);
}

static void print_table(const struct view *view)
{
    printf("  %-42s %-6s %-6s %11s  %-11s  %s\n", "threshold", "ranks", "device", "value", "unit",
           "from");
    for (int t = 0; t < CECL_TUNE_COUNT; t++) {
        puts("");
        print_folded("# ", cecl_thresholds[t].decision);
        each_row(view, (enum cecl_threshold)t, show_line);
    }
}

/* ---- as a file */

static void show_row(const struct view *view, const struct cecl_tuning_row *row)
{
    struct cecl_tuning_row only = *row;
    char text[CECL_TUNING_TEXT];
    if (view->ranks > 0)
        only.first = only.last = (uint16_t)view->ranks;
    if (view->device != CECL_TUNING_ANY)
        only.device = view->device;
    cecl_tuning_row_text(&only, text);
    puts(text);
}

static void print_file(const struct view *view)
{
    puts(CECL_TUNING_HEADER);
    puts("# name, ranks, device, value. If several rows fit, the first one holds. A threshold\n"
         "# without a row keeps its built-in value. CECL_TUNING=FILE loads this file.");
    for (int t = 0; t < CECL_TUNE_COUNT; t++) {
        puts("");
        print_folded("# ", cecl_thresholds[t].decision);
        each_row(view, (enum cecl_threshold)t, show_row);
    }
}

/* ---- options */

static bool take(struct view *view, int option, const char *value)
{
    char *end;
    if (option == 'e') {
        view->evidence = true;
        return true;
    }
    if (option == 'r') {
        const long ranks = strtol(value, &end, 10);
        view->ranks = (int)ranks;
        return *value && !*end && ranks >= 1 && ranks <= CECL_TUNING_RANKS_MAX;
    }
    for (int d = 0; d < CECL_TUNING_DEVICES && option == 'd'; d++)
        if (strcmp(value, cecl_tuning_device_text((enum cecl_tuning_device)d)) == 0) {
            view->device = (enum cecl_tuning_device)d;
            return true;
        }
    return false;
}

/* Returns false, after a message on stderr, if an argument is wrong. */
static bool read_view(struct view *view, int argc, char **argv)
{
    static const struct option longs[] = {{"evidence", 0, NULL, 'e'},
                                          {"ranks", 1, NULL, 'r'},
                                          {"device", 1, NULL, 'd'},
                                          {NULL, 0, NULL, 0}};
    int option;
    opterr = 0;
    *view = (struct view){.device = CECL_TUNING_ANY};
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1)
        if (option == '?' || !take(view, option, optarg)) {
            fprintf(
                stderr,
                "cecl_info: %s: --evidence, --ranks 1 to %d or --device cuda or host expected\n",
                argv[optind - 1], CECL_TUNING_RANKS_MAX);
            return false;
        }
    if (optind < argc) {
        fprintf(stderr, "cecl_info: %s: no option\n", argv[optind]);
        return false;
    }
    view->path = cecl_setting_text(CECL_SET_TUNING);
    if (!view->path || cecl_tuning_read(view->path, &view->file) == ceclSuccess)
        return true;
    fprintf(stderr, "cecl_info: %s\n", cecl_message());
    return false;
}

static int print_with(void (*print)(const struct view *), int argc, char **argv)
{
    struct view view;
    if (!read_view(&view, argc, argv))
        return 2;
    print(&view);
    cecl_tuning_forget(&view.file);
    return 0;
}

int info_tuning(int argc, char **argv)
{
    return print_with(print_table, argc, argv);
}

int info_tuning_file(int argc, char **argv)
{
    return print_with(print_file, argc, argv);
}
