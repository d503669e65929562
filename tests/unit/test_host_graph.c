/* An event orders launches of graphs on all streams. (tests/multi compares launches, and ends graphs that run.) */
#include "host_fixture.h"

static struct cecl_capture begin_on(ceclStream_t stream)
{
    struct cecl_capture capture;
    assert_int_equal(dev->ops->capture_begin(dev, stream), ceclSuccess);
    assert_int_equal(dev->ops->stream_check(dev, stream, &capture), ceclSuccess);
    assert_true(capture.id != 0);
    return capture;
}

static void *end_on(ceclStream_t stream)
{
    struct cecl_capture capture;
    void *graph = NULL;
    assert_int_equal(dev->ops->capture_end(dev, stream, &graph), ceclSuccess);
    assert_int_equal(dev->ops->stream_check(dev, stream, &capture), ceclSuccess);
    assert_true(capture.id == 0);
    return graph;
}

TEST_BETWEEN(check_refuses_a_stream_that_captures, set_up, tear_down)
{
    ceclStream_t stream = new_stream();
    begin_on(stream);
    assert_int_equal(dev->ops->stream_check(dev, NULL, NULL), ceclSuccess);
    assert_int_equal(dev->ops->stream_check(dev, stream, NULL), ceclInvalidUsage);
    assert_int_equal(dev->ops->graph_destroy(end_on(stream)), ceclSuccess);
}

static void launch(void *graph, ceclStream_t stream)
{
    assert_int_equal(dev->ops->graph_launch(dev, graph, stream), ceclSuccess);
}

/* Graphs on one stream and copies on another append to a list in the order of launches, though the first graph waits. */
TEST_BETWEEN(an_event_orders_graphs_and_other_work, set_up, tear_down)
{
    struct cecl_order order = {0};
    uint32_t gate = 0, sources[20], list[20], *last = &list[19];
    void *graphs[10];
    ceclStream_t streams[2] = {new_stream(), new_stream()};
    assert_int_equal(dev->ops->event_create(dev, &order.event), ceclSuccess);
    for (uint32_t i = 0; i < 20; i++)
        sources[i] = i;
    memset(list, 0xff, sizeof(list));
    for (int g = 0; g < 10; g++) { /* each graph copies what its source holds when it runs */
        const struct cecl_capture capture = begin_on(streams[0]);
        assert_int_equal(dev->ops->order_begin(dev, &order, streams[0], &capture), ceclSuccess);
        copy(streams[0], &list[2 * g], last, sizeof(*last));
        copy(streams[0], last, &sources[2 * g], sizeof(*last));
        assert_int_equal(dev->ops->order_end(dev, &order, streams[0], &capture), ceclSuccess);
        graphs[g] = end_on(streams[0]);
    }
    memop(streams[0], CECL_MEMOP_WAIT, &gate, 1);
    for (int g = 0; g < 9; g++) {
        launch(graphs[g], streams[0]);
        assert_int_equal(dev->ops->event_wait(dev, streams[1], order.event), ceclSuccess);
        copy(streams[1], &list[2 * g + 1], last, sizeof(*last));
        copy(streams[1], last, &sources[2 * g + 1], sizeof(*last));
        assert_int_equal(dev->ops->event_record(dev, order.event, streams[1]), ceclSuccess);
    }
    assert_int_equal(dev->ops->event_query(dev, order.event), ceclInProgress);
    dev->ops->host_write(dev, &gate, 1, 1);
    synchronize(streams[1]);
    assert_int_equal(dev->ops->event_query(dev, order.event), ceclSuccess);
    for (uint32_t i = 1; i < 18; i++)
        assert_int_equal(list[i], i - 1);
    for (int g = 0; g < 10; g++)
        assert_int_equal(dev->ops->graph_destroy(graphs[g]), ceclSuccess);
    assert_int_equal(dev->ops->event_destroy(dev, order.event), ceclSuccess);
}
