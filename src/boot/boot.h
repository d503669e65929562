/* How ranks meet and keep in touch. This file is a guide to the others, and declares nothing.
 *
 *   to                                          use                       in
 *   ------------------------------------------  ------------------------  ----------------------
 *   introduce each other, before anything is    an oob: one all-gather    oob.h
 *     shared
 *     only an id is known                         TCP, to a root thread   tcp.h, tcp*.c
 *   agree on who makes a new communicator       a meeting                 meeting.h
 *     although the parent may be broken
 *   connect all pairs of one host               the mesh                  mesh.h
 *   make a call together                        its exchanges             mesh.c (`data`)
 *   tell one peer of memory, at any time        its posts                 mesh_post.c (`post`)
 *   hear that a peer left, gave up or died      its news                  mesh_watch.c (`life`)
 *   write words that all ranks see, for ever    shared memory             shared.h
 *   let strangers call without harm             a door                    door.h
 *   name ranks in messages                      a list of ranks           rank_list.h
 *
 * A pair has three sockets, because different threads read them, and none of these may wait behind
 * what another one has not read yet. The thread that makes a call reads `data`. The worker
 * reads `post`, and CUDA may hold it up. Any thread may read `life`, under life_lock. The watchdog
 * always reads it, so it is never full.
 *
 * A socket closes when its process ends, but not if a forked child holds it. So the mesh also watches
 * the process of each peer (process.h). Shared memory cannot tell that a process has ended, so the
 * meetings ask the mesh.
 *
 * Below all that: net.h has sockets and their deadlines, packet.h messages with descriptors. */
