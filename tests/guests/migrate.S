# A guest of one sector for tests of migration.
#
# It says `boot` once. Then, a few times a second, it adds one to a counter in memory, writes it to
# the second sector of its disk, reads that back, and says the counter in hexadecimal digits on
# the serial port, or `BAD` if the disk has something else. A guest that was started again would
# say `boot` and count from one.
#
# Assembled as pulse.S is.

    .code16
    .globl _start
    .set PORT, 0x3f8            # first serial port
    .set BUFFER, 0x8000

_start:
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7000, %sp
    sti
    movb %dl, drive
    movw $boot, %si
    call say

next:
    incl counter
    movl counter, %eax
    movl %eax, BUFFER
    movl %eax, BUFFER+508
    movb $0x43, %ah
    call disk
    movl $0, BUFFER
    movl $0, BUFFER+508
    movb $0x42, %ah
    call disk
    movl counter, %eax
    cmpl %eax, BUFFER
    jne wrong
    cmpl %eax, BUFFER+508
    jne wrong
    movw $8, %cx
digit:
    roll $4, counter
    movb counter, %al
    andb $15, %al
    addb $'0', %al
    cmpb $'9', %al
    jbe 1f
    addb $39, %al               # 'a' is not next to '9'
1:  call put
    loop digit
    movw $newline, %si
    call say
    movw 0x46c, %bx             # the BIOS' clock, 18 ticks a second
    addw $3, %bx
rest:
    hlt
    movw 0x46c, %ax
    subw %bx, %ax
    js rest
    jmp next

wrong:
    movw $bad, %si
    call say
    jmp next

disk:
    movb $0, %al
    movw $packet, %si
    movb drive, %dl
    int $0x13
    jnc 1f
    movw $failed, %si
    call say
1:  ret

say:
    lodsb
    testb %al, %al
    jz 1f
    call put
    jmp say
1:  ret

put:
    pushw %ax
    movw $PORT+5, %dx
1:  inb %dx, %al
    testb $0x20, %al
    jz 1b
    popw %ax
    movw $PORT, %dx
    outb %al, %dx
    ret

boot:    .asciz "boot\r\n"
bad:     .asciz "BAD\r\n"
failed:  .asciz "failed\r\n"
newline: .asciz "\r\n"
drive:   .byte 0
    .balign 4
counter: .long 0
packet:  .byte 16, 0
    .word 1                     # one sector
    .word BUFFER, 0
    .quad 1                     # the second one

    .org 510
    .word 0xaa55
