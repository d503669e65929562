/* How ranks meet and keep in touch. This file is a guide to the others, and declares nothing.
 *
 *   to                                          use                       in
 *   ------------------------------------------  ------------------------  ----------------------
 *   find each other, before anything is shared  an oob: an all-gather     oob.h
 *     the caller has a way                        the caller's callbacks  oob.c
 *     only an id is known                         TCP, to a root thread   tcp.h, tcp*.c
 *     threads of one process                      boxes                   boxes.h, oob.c
 *     members of a split or a shrink              the parent's boxes      boxes.h
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
 * Two ranks share three sockets. Different threads read them, and no thread may wait behind data
 * that another thread has not read yet. The thread that makes a call reads `data`. The worker reads
 * `post`, and CUDA may hold it up. Any thread may read `life`, under life_lock. The watchdog always
 * reads `life`, so that socket is never full.
 *
 * A socket closes when its process ends, but not if a forked child holds it. So the mesh also
 * watches the process of each peer (process.h). Shared memory cannot tell that a process has ended,
 * so the meetings' lock and the boxes ask the mesh.
 *
 * A meeting decides, under a lock. Boxes only carry parts, and two ranks that read them may see
 * different outcomes. All members must agree on who the members are. So a shrink meets before it
 * uses boxes, and a split asks over the parent's mesh.
 *
 * Below all that: net.h has sockets and their deadlines, packet.h messages with descriptors. */
